#include "tools/calibrate/host_update.h"

#include <algorithm>
#include <chrono>

#include "src/base/parallel_for.h"

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

}  // namespace stowage
