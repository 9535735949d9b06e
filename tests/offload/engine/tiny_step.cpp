#include "tests/offload/engine/tiny_step.h"

#include <cmath>

namespace stowage::testing {
namespace {

constexpr std::int64_t count = tiny_elements;
constexpr Bytes size = count * sizeof(float);

template <class T>
T* data(const Operand& operand) {
  return static_cast<T*>(operand.data);
}

void forward(const LaunchArguments& a) {
  const auto* x = data<std::int32_t>(a.reads[0]);
  const auto* w = data<float>(a.reads[1]);
  auto* h = data<float>(a.writes[0]);
  double loss = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    h[i] = w[i] * static_cast<float>(x[i]);
    loss += 0.5 * h[i] * h[i] / count;
  }
  *data<double>(a.writes[1]) = loss;
}

void backward(const LaunchArguments& a) {
  const auto* x = data<std::int32_t>(a.reads[0]);
  const auto* h = data<float>(a.reads[1]);
  auto* dw = data<float>(a.writes[0]);
  for (std::int64_t i = 0; i < count; ++i) dw[i] = h[i] * static_cast<float>(x[i]) / count;
}

void square_sum(const LaunchArguments& a) {
  const auto* dw = data<float>(a.reads[0]);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += dw[i] * dw[i];
  *data<double>(a.writes[0]) = sum;
}

void clip(const LaunchArguments& a) {
  auto* result = data<double>(a.writes[0]);
  result[0] = std::sqrt(*data<double>(a.reads[0]));
  result[1] = result[0] > 1 ? 1 / result[0] : 1;
}

void adamw(const LaunchArguments& a) {
  auto* p = data<float>(a.writes[0]);
  auto* m = data<float>(a.writes[1]);
  auto* v = data<float>(a.writes[2]);
  const auto* gradient = data<float>(a.reads[1]);
  const auto scale = static_cast<float>(data<double>(a.reads[4])[1]);
  const auto rate = static_cast<float>(a.step.learning_rate / static_cast<double>(1 + a.step.step));
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    m[i] = 0.9F * m[i] + 0.1F * g;
    v[i] = 0.95F * v[i] + 0.05F * g * g;
    p[i] -= rate * m[i] / (std::sqrt(v[i]) + 1e-8F);
  }
}

Tensor tensor(std::string name, TensorKind kind, DataType type = DataType::f32,
              std::vector<std::int64_t> shape = {count}) {
  return {std::move(name), type, std::move(shape), kind, {}};
}

Op op(std::string name, Phase phase, std::vector<TensorId> reads, std::vector<TensorId> writes) {
  Op result;
  result.kernel = name;
  result.name = std::move(name);
  result.reads = std::move(reads);
  result.writes = std::move(writes);
  result.phase = phase;
  result.unit = phase == Phase::update ? no_id : 0;
  result.cost = {1e3, 1e3};
  return result;
}

Bucket bucket(std::string name, TensorKind kind, TensorId tensor, Bytes bytes, Residency residency,
              bool on_host, bool pinned) {
  Bucket of{std::move(name), kind, residency, {}, bytes, {{tensor, 0}}};
  if (on_host) of.places = {{MemoryId::host, pinned}};
  return of;
}

Instruction run(InstructionKind kind, OpId op, std::vector<LifetimeId> uses, std::vector<Wait> waits) {
  const bool on_host = kind == InstructionKind::gate || (kind == InstructionKind::commit && uses.empty());
  const LaneRole lane = on_host ? LaneRole::host : LaneRole::compute;
  return {kind, lane, op, no_id, std::move(uses), std::move(waits)};
}

Instruction move(InstructionKind kind, LifetimeId lifetime, std::vector<Wait> waits) {
  const LaneRole lane = kind == InstructionKind::prefetch ? LaneRole::h2d : LaneRole::d2h;
  return {kind, lane, no_id, lifetime, {}, std::move(waits)};
}

// Totals as the instructions imply them.
Plan complete(Plan plan, Bytes live_peak_bytes) {
  plan.live_peak_bytes = live_peak_bytes;
  for (const Lifetime& lifetime : plan.lifetimes) {
    const Bytes end = lifetime.offset + plan.buckets[lifetime.bucket].bytes;
    plan.device_peak_bytes = std::max(plan.device_peak_bytes, end);
  }
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.lifetime == no_id) continue;
    const Bytes bytes = plan.buckets[plan.lifetimes[instruction.lifetime].bucket].bytes;
    (instruction.kind == InstructionKind::prefetch ? plan.h2d_bytes : plan.d2h_bytes) += bytes;
  }
  for (const Bucket& bucket : plan.buckets) {
    if (bucket.on_host()) plan.host_bytes += bucket.bytes;
    if (bucket.pinned()) plan.pinned_bytes += bucket.bytes;
  }
  return plan;
}

}  // namespace

Graph tiny_graph() {
  Graph graph;
  graph.tensors = {tensor("x", TensorKind::input, DataType::i32),
                   tensor("w", TensorKind::parameter),
                   tensor("h", TensorKind::activation),
                   tensor("loss", TensorKind::activation, DataType::f64, {}),
                   tensor("dw", TensorKind::gradient),
                   tensor("sq", TensorKind::activation, DataType::f64, {}),
                   tensor("m", TensorKind::optimizer_state),
                   tensor("v", TensorKind::optimizer_state),
                   tensor("clip", TensorKind::activation, DataType::f64, {2})};
  graph.tensors[tiny_weight].initializer = {0.1, 0.5};
  graph.ops = {op("forward", Phase::forward, {0, 1}, {2, 3}), op("backward", Phase::backward, {0, 2}, {4}),
               op("square_sum", Phase::backward, {4}, {5}), op("clip", Phase::update, {5}, {8}),
               op("adamw", Phase::update, {1, 4, 6, 7, 8}, {1, 6, 7})};
  graph.unit_names = {"unit"};
  graph.loss = 3;
  graph.clip = 8;
  return graph;
}

Plan tiny_streamed_plan() {
  using enum InstructionKind;
  Plan plan;
  plan.policy = "auto";
  plan.buckets = {bucket("x", TensorKind::input, 0, size, Residency::streamed, true, true),
                  bucket("w", TensorKind::parameter, 1, size, Residency::streamed, true, true),
                  bucket("h", TensorKind::activation, 2, size, Residency::offloaded, true, true),
                  bucket("loss", TensorKind::activation, 3, 8, Residency::transient, true, true),
                  bucket("dw", TensorKind::gradient, 4, size, Residency::transient, true, true),
                  bucket("sq", TensorKind::activation, 5, 8, Residency::transient, true, true),
                  bucket("m", TensorKind::optimizer_state, 6, size, Residency::host, true, false),
                  bucket("v", TensorKind::optimizer_state, 7, size, Residency::host, true, false),
                  bucket("clip", TensorKind::activation, 8, 16, Residency::host, true, false)};
  //                 bucket first last offset end
  plan.lifetimes = {{1, 0, 1, 0, 2},          // w
                    {0, 0, 2, size, 6},       // x
                    {2, 0, 1, 2 * size, 3},   // h, forward
                    {3, 0, 2, 3 * size, 4},   // loss
                    {2, 1, 2, 2 * size, 6},   // h, backward
                    {4, 1, 3, 0, 8},          // dw
                    {5, 2, 3, 3 * size, 9}};  // sq
  plan.instructions = {move(prefetch, 0, {{11, 1}}),
                       move(prefetch, 1, {}),
                       run(launch, 0, {0, 1, 2, 3}, {{1, 0}}),
                       move(offload, 2, {{2, 0}}),
                       move(offload, 3, {}),
                       move(prefetch, 4, {{3, 0}}),
                       run(launch, 1, {1, 4, 5}, {{5, 0}}),
                       run(launch, 2, {5, 6}, {{4, 0}}),
                       move(offload, 5, {{7, 0}}),
                       move(offload, 6, {}),
                       run(gate, 3, {}, {{9, 0}}),
                       run(commit, 4, {}, {})};
  plan.gate = 10;
  return complete(std::move(plan), 3 * size + 8);
}

Plan tiny_resident_plan() {
  using enum InstructionKind;
  Plan plan;
  plan.policy = "none";
  plan.buckets = {bucket("x", TensorKind::input, 0, size, Residency::transient, true, true),
                  bucket("w", TensorKind::parameter, 1, size, Residency::resident, false, false),
                  bucket("h", TensorKind::activation, 2, size, Residency::transient, false, false),
                  bucket("loss", TensorKind::activation, 3, 8, Residency::transient, true, true),
                  bucket("dw", TensorKind::gradient, 4, size, Residency::transient, false, false),
                  bucket("sq", TensorKind::activation, 5, 8, Residency::transient, true, true),
                  bucket("m", TensorKind::optimizer_state, 6, size, Residency::resident, false, false),
                  bucket("v", TensorKind::optimizer_state, 7, size, Residency::resident, false, false),
                  bucket("clip", TensorKind::activation, 8, 16, Residency::transient, true, true)};
  plan.lifetimes = {{1, 0, 4, 0, no_id},    {6, 0, 4, size, no_id}, {7, 0, 4, 2 * size, no_id},
                    {0, 0, 2, 3 * size, 3}, {2, 0, 2, 4 * size, 3}, {3, 0, 1, 6 * size, 2},
                    {4, 1, 4, 5 * size, 8}, {5, 2, 3, 7 * size, 5}, {8, 3, 4, 8 * size, 8}};
  plan.instructions = {move(prefetch, 3, {}),
                       run(launch, 0, {0, 3, 4, 5}, {{0, 0}}),
                       move(offload, 5, {{1, 0}}),
                       run(launch, 1, {3, 4, 6}, {}),
                       run(launch, 2, {6, 7}, {}),
                       move(offload, 7, {{4, 0}}),
                       run(gate, 3, {}, {{5, 0}}),
                       move(prefetch, 8, {}),
                       run(commit, 4, {0, 1, 2, 6, 8}, {{7, 0}})};
  plan.gate = 6;
  return complete(std::move(plan), 6 * size);
}

LaunchTable tiny_kernels() {
  LaunchTable table;
  table.add("forward", forward);
  table.add("backward", backward);
  table.add("square_sum", square_sum);
  table.add("clip", clip);
  table.add("adamw", adamw);
  return table;
}

}  // namespace stowage::testing
