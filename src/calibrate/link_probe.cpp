#include "src/calibrate/link_probe.h"

#include <algorithm>
#include <cstring>

#include "src/calibrate/drain.h"
#include "src/calibrate/link_fit.h"
#include "src/calibrate/stopwatch.h"

namespace stowage {
namespace {

// One direction: a lane with its own memory on both sides.
class Direction {
 public:
  Direction(Device& device, LaneRole role, Bytes bytes)
      : device_(device),
        inward_(role == LaneRole::h2d),
        lane_(device, role),
        here_(device, MemoryKind::pinned, bytes),
        there_(device, MemoryKind::device, bytes),
        drain_(device, lane_.id()),
        stopwatch_(device, lane_.id()) {
    std::memset(here_.data(), 0x3c, bytes);
    if (!inward_) fill(device, bytes);
  }

  void copy(Bytes bytes, int count) {
    for (int i = 0; i < count; ++i) {
      void* to = inward_ ? there_.data() : here_.data();
      const void* from = inward_ ? here_.data() : there_.data();
      device_.copy(lane_.id(), to, from, bytes, "link probe");
    }
  }
  double alone(Bytes bytes, int repetitions) {
    return stopwatch_.median_seconds(repetitions, [&] { copy(bytes, 1); });
  }
  // Starts `count` copies once `gate` has passed.
  void begin(EventId gate, Bytes bytes, int count) {
    device_.wait(lane_.id(), gate);
    stopwatch_.start();
    copy(bytes, count);
    stopwatch_.stop();
  }
  double read() { return stopwatch_.read(); }

 private:
  void fill(Device& device, Bytes bytes) {
    const Lane lane(device, LaneRole::h2d);
    const Drain drain(device, lane.id());
    device.copy(lane.id(), there_.data(), here_.data(), bytes, "link probe fill");
    device.synchronise_lane(lane.id());
  }

  Device& device_;
  bool inward_;
  Lane lane_;
  DeviceMemory here_;
  DeviceMemory there_;
  Drain drain_;
  Stopwatch stopwatch_;
};

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
    for (int i = 0; i < std::max(1, options_.repetitions / in_a_row); ++i) {
      device_.record(gate_.id(), gate_lane_.id());
      h2d_.begin(gate_.id(), bytes, in_a_row);
      d2h_.begin(gate_.id(), bytes, in_a_row);
      in.push_back(h2d_.read() / in_a_row);
      out.push_back(d2h_.read() / in_a_row);
    }
    file.h2d_both.samples.push_back({bytes, median(std::move(in))});
    file.d2h_both.samples.push_back({bytes, median(std::move(out))});
  }

  Device& device_;
  LinkProbeOptions options_;
  Lane gate_lane_;
  Event gate_;
  Direction h2d_;
  Direction d2h_;
};

}  // namespace

void measure_link(Device& device, const LinkProbeOptions& options, MachineFile& file) {
  LinkProbe(device, options).measure(file);
}

}  // namespace stowage
