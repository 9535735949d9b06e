#include "tools/calibrate/host_probe.h"

#include <algorithm>
#include <chrono>

#include "src/base/parallel_for.h"
#include "tools/calibrate/host_update.h"
#include "tools/calibrate/link_direction.h"

namespace stowage {
namespace {

class ThreadsKept {
 public:
  ThreadsKept() : threads_(parallel_threads()) {}
  ThreadsKept(const ThreadsKept&) = delete;
  ThreadsKept& operator=(const ThreadsKept&) = delete;
  ~ThreadsKept() { set_parallel_threads(threads_); }
  int threads() const { return threads_; }

 private:
  int threads_;
};

std::vector<int> thread_counts(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

}  // namespace

std::vector<HostRate> measure_host(const HostProbeOptions& options) {
  const ThreadsKept kept;
  HostUpdate update(options.elements);
  std::vector<HostRate> rates;
  for (const int threads : thread_counts(options.most_threads > 0 ? options.most_threads : kept.threads())) {
    set_parallel_threads(threads);
    update.seconds();
    std::vector<double> times;
    for (int i = 0; i < options.repetitions; ++i) times.push_back(update.seconds());
    rates.push_back({threads, update.bytes() / median(std::move(times))});
  }
  return rates;
}

double measure_host_total(Device& device, const HostProbeOptions& options, const MachineFile& file) {
  using Clock = std::chrono::steady_clock;
  constexpr Bytes piece = 4_MiB;
  constexpr double most_copies = 4096;
  HostUpdate update(options.elements);
  LinkDirection in(device, LaneRole::h2d, options.copied), out(device, LaneRole::d2h, options.copied);
  update.seconds();
  const double wanted = 2 * options.repetitions * update.seconds();  // all slow each other
  const auto count = [&](const Link& link) {
    return static_cast<int>(std::clamp(wanted / link.seconds(piece), 1.0, most_copies));
  };
  const int ins = count(file.h2d.fit), outs = count(file.d2h.fit);
  in.begin(piece, ins);
  out.begin(piece, outs);
  const Clock::time_point begin = Clock::now();
  int updates = 0;
  do {
    update.seconds();
    ++updates;
  } while (updates < 2 * options.repetitions && !in.made() && !out.made());
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const auto bytes = [](int copies) { return copies * static_cast<double>(piece); };
  return updates * update.bytes() / seconds + bytes(ins) / in.read() + bytes(outs) / out.read();
}

}  // namespace stowage
