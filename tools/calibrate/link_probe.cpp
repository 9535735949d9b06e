#include "tools/calibrate/link_probe.h"

#include <algorithm>

#include "tools/calibrate/fit.h"

namespace stowage {
namespace {

class LinkProbe {
 public:
  LinkProbe(Device& device, const LinkProbeOptions& options)
      : device_(device),
        options_(options),
        gate_lane_(device, LaneRole::compute),
        gate_(device),
        h2d_(device, LaneRole::h2d, options.largest),
        d2h_(device, LaneRole::d2h, options.largest) {}

  void measure(MachineFile& file) {
    for (Bytes bytes = options_.smallest; bytes <= options_.largest; bytes *= 2) {
      file.h2d.samples.push_back({bytes, h2d_.alone(bytes, options_.repetitions)});
      file.d2h.samples.push_back({bytes, d2h_.alone(bytes, options_.repetitions)});
      both(bytes, file);
      const bool enough = file.h2d.samples.size() >= least_sizes;
      if (enough &&
          file.h2d.samples.back().seconds + file.d2h.samples.back().seconds > 2 * options_.longest_seconds)
        break;
    }
    for (CopyCurve* curve : {&file.h2d, &file.d2h, &file.h2d_both, &file.d2h_both}) {
      curve->fit = fit_link(curve->samples);
    }
  }

 private:
  static constexpr std::size_t least_sizes = 4;
  static constexpr int in_a_row = 3;  // copies each way, so that most of their time overlaps

  void both(Bytes bytes, MachineFile& file) {
    std::vector<double> in;
    std::vector<double> out;
    const double in_alone = file.h2d.samples.back().seconds, out_alone = file.d2h.samples.back().seconds;
    for (int i = 0; i < std::max(1, options_.repetitions / in_a_row); ++i) {
      device_.record(gate_.id(), gate_lane_.id());
      h2d_.begin(gate_.id(), bytes, in_a_row);
      d2h_.begin(gate_.id(), bytes, in_a_row);
      const double in_all = h2d_.read(), out_all = d2h_.read();
      in.push_back(seconds_beside(in_a_row, in_all, out_all, in_alone));
      out.push_back(seconds_beside(in_a_row, out_all, in_all, out_alone));
    }
    file.h2d_both.samples.push_back({bytes, median(std::move(in))});
    file.d2h_both.samples.push_back({bytes, median(std::move(out))});
  }

  Device& device_;
  LinkProbeOptions options_;
  Lane gate_lane_;
  Event gate_;
  LinkDirection h2d_;
  LinkDirection d2h_;
};

}  // namespace

double seconds_beside(int count, double all, double others, double alone) {
  const double plain = all / count;
  if (all <= others || alone <= 0) return plain;
  // Number of copies made until the other direction had ended.
  const double beside = count - (all - others) / alone;
  return beside < 1 ? plain : std::max(plain, others / beside);
}

void measure_link(Device& device, const LinkProbeOptions& options, MachineFile& file) {
  LinkProbe(device, options).measure(file);
}

}  // namespace stowage
