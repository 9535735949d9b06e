#include "src/calibrate/host_probe.h"

#include <array>
#include <chrono>

#include "src/base/parallel_for.h"
#include "src/calibrate/stopwatch.h"
#include "stowage/launch_table.h"

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

// One update in host memory: parameter, gradient and both moments, then the clip's norm and scale.
class HostUpdate {
 public:
  explicit HostUpdate(std::int64_t elements) : kernel_(cpu_launch_table().find(op())) {
    vector_.shape = {elements};
    clip_.type = DataType::f64;
    clip_.shape = {2};
    for (auto& values : values_) values.assign(static_cast<std::size_t>(elements), 0.125F);
  }

  // Reads four vectors and writes three of them again.
  double bytes() const { return 7 * static_cast<double>(vector_.bytes()); }

  double seconds() {
    using Clock = std::chrono::steady_clock;
    auto vector = [this](std::size_t i) { return Operand{values_.at(i).data(), &vector_}; };
    const std::array<Operand, 5> reads{
        {vector(0), vector(1), vector(2), vector(3), {clip_values_.data(), &clip_}}};
    const std::array<Operand, 3> writes{{vector(0), vector(2), vector(3)}};
    const Clock::time_point begin = Clock::now();
    kernel_({.op = &op(), .reads = reads, .writes = writes, .step = {0, 0, 1e-3}, .stream = nullptr});
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  static const Op& op() {
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

  Kernel kernel_;
  Tensor vector_;
  Tensor clip_;
  std::array<std::vector<float>, 4> values_;
  std::array<double, 2> clip_values_{1, 1};
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

}  // namespace stowage
