#include "tools/calibrate/host_probe.h"

#include <algorithm>
#include <chrono>

#include "src/base/parallel_for.h"
#include "tools/calibrate/link_probe.h"

namespace stowage {
namespace {

const Op& update_op() {
  static const Op adamw = [] {
    Op made;
    made.name = "calibrate.adamw";
    made.kernel = "adamw";
    made.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}};
    made.phase = Phase::update;
    return made;
  }();
  return adamw;
}

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

HostUpdate::HostUpdate(std::int64_t elements) : kernel_(cpu_launch_table().find(update_op())) {
  vector_.shape = {elements};
  clip_.type = DataType::f64;
  clip_.shape = {2};
  constexpr std::int64_t chunk = std::int64_t{1} << 16;
  for (auto& values : values_) {
    values = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(elements));
    parallel_for(elements, chunk, [&](std::int64_t begin, std::int64_t end) {
      std::fill(&values[begin], &values[end], 0.125F);
    });
  }
}

double HostUpdate::seconds() {
  using Clock = std::chrono::steady_clock;
  auto vector = [this](std::size_t i) { return Operand{values_.at(i).get(), &vector_}; };
  const std::array<Operand, 5> reads{
      {vector(0), vector(1), vector(2), vector(3), {clip_values_.data(), &clip_}}};
  const std::array<Operand, 3> writes{{vector(0), vector(2), vector(3)}};
  const Clock::time_point begin = Clock::now();
  kernel_({.op = &update_op(), .reads = reads, .writes = writes, .step = {0, 0, 1e-3}, .stream = nullptr});
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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
  // Twice the time of the updates, since all slow each other.
  const double wanted = 2 * options.repetitions * update.seconds();
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
