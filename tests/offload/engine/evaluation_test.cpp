// Engines that evaluate the model of another between its steps: losses of the Evaluator to the bit, and steps
// as if there had been no evaluation.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "stowage/engine.h"
#include "stowage/error.h"
#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/expect_refused.h"
#include "tests/support/quick_plan.h"
#include "tests/support/sliced_plans.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using test::expect_refused;

constexpr std::int32_t vocabulary = 150;

ModelConfig sizes() {
  return {.layers = 2,
          .width = 48,
          .heads = 4,
          .vocabulary = vocabulary,
          .sequence = 16,
          .batch = 4,
          .micro_batches = 2,
          .key_heads = 2,
          .head_width = 16,
          .inner = 96,
          .table_rows = 64};
}

Graph training_graph(DataType type, const ModelConfig& config) {
  GraphBuilder builder(type);
  return builder.finish(llama_family.build(builder, config).loss, AdamW{});
}
Graph evaluation_graph(DataType type, const ModelConfig& config) {
  GraphBuilder builder(type, GraphBuilder::Trained::none);
  return builder.finish(llama_family.build(builder, config).loss, AdamW{});
}

TensorId named(const Graph& graph, const std::string& name) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensor(id).name == name) return id;
  return no_id;
}

EngineOptions seeded() {
  EngineOptions options;
  options.seed = run_seed;
  return options;
}

// The loss of the evaluation's graph on the values of `engine`, op by op.
double loss_of(Engine& engine, const Graph& training, const Graph& graph, std::span<const InputData> inputs) {
  Evaluator evaluator(graph, cpu_launch_table(), run_seed);
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensor(id).kind == TensorKind::parameter)
      evaluator.value(id) = engine.read(named(training, graph.tensor(id).name));
  for (const InputData& input : inputs)
    std::memcpy(evaluator.value(input.tensor).data(), input.values.data(), input.values.size_bytes());
  evaluator.run(0, 0);
  double loss = 0;
  std::memcpy(&loss, evaluator.value(graph.loss).data(), sizeof loss);
  return loss;
}

// The evaluation's plan beside a plan of the training, in all memory that is free.
Plan beside(const Plan& plan, const Graph& training, const Graph& graph, const Machine& machine = {}) {
  const Graph planned = planned_beside(graph, training, plan);
  return std::get<Plan>(quick_plan(planned, machine, {.device = free_between_steps(plan).bytes()}));
}

class Evaluation : public ::testing::TestWithParam<DataType> {
 protected:
  const Graph training = training_graph(GetParam(), sizes());
  const Graph graph = evaluation_graph(GetParam(), sizes());
  const Machine machine;
  Planner trainings = quick_planner(training, machine);
  Planner evaluations = quick_planner(graph, machine);

  Plan plan_in(Bytes budget) { return std::get<Plan>(trainings.answer({.device = budget}).outcome); }
  Plan plan_of_all_on_the_device() const {
    return std::get<Plan>(quick_plan(training, machine, {}, {.policy = Policy::none}));
  }
};

TEST_P(Evaluation, GraphHasNoGradientAndNoState) {
  check(graph);
  for (const Tensor& tensor : graph.tensors)
    EXPECT_TRUE(tensor.kind != TensorKind::gradient && tensor.kind != TensorKind::optimizer_state)
        << tensor.name;
  EXPECT_EQ(graph.ops.back().kernel, "clip");
  for (const Op& op : graph.ops) EXPECT_NE(op.phase, Phase::backward) << op.name;
}

// More memory keeps more on the device, and none of it changes a bit.
TEST_P(Evaluation, HasTheBitsOfTheEvaluatorInEveryBudget) {
  StepInputs inputs(graph, vocabulary);
  std::vector<std::uint64_t> losses;
  const TrainingRun expected = run_evaluator(training, cpu_launch_table(), 4, vocabulary);
  const Bytes least = trainings.minimum_bytes(), need = trainings.need_bytes();
  int kept = 0;  // buckets that evaluations keep on the device
  for (const Plan& plan :
       {plan_in(least), plan_in((least + need) / 2), plan_in(need), plan_of_all_on_the_device()}) {
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
    Engine engine(*device, training, plan, seeded());
    const Plan own = beside(plan, training, graph, machine);
    for (const Bucket& bucket : own.buckets)
      kept += bucket.kind == TensorKind::parameter && bucket.residency == Residency::resident ? 1 : 0;
    Engine evaluation(engine, graph, own);
    StepInputs steps(training, vocabulary);
    std::vector<std::uint64_t> seen;
    for (std::uint64_t step = 0; step < 4; ++step) {
      make_step(engine, steps);
      if (step % 2 == 0) continue;
      for (std::uint64_t batch = 0; batch < 2; ++batch) {
        const double loss = evaluation.step(inputs.of(batch), {}).loss;
        // The first plan alone: whoever reads values has the next evaluation load what it keeps.
        if (losses.empty()) {
          EXPECT_EQ(loss, loss_of(engine, training, graph, inputs.of(batch)));
        }
        seen.push_back(std::bit_cast<std::uint64_t>(loss));
      }
    }
    if (losses.empty()) losses = seen;
    EXPECT_EQ(seen, losses);
    EXPECT_EQ(read_values(engine, training), expected.values);
    EXPECT_EQ(device->counters().highest_device_byte, plan.device_peak_bytes);
  }
  EXPECT_GT(kept, 0);
}

TEST_P(Evaluation, MovesNothingThatTheTrainingKeepsOnTheDevice) {
  const Plan plan = plan_of_all_on_the_device();
  const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
  Engine engine(*device, training, plan, seeded());
  const Plan own = quick_least_plan(planned_beside(graph, training, plan), machine);
  Engine evaluation(engine, graph, own);
  for (const Bucket& bucket : own.buckets) EXPECT_NE(bucket.kind, TensorKind::parameter) << bucket.name;
  StepInputs inputs(graph, vocabulary);
  const Bytes before = device->counters().h2d_bytes;
  evaluation.step(inputs.of(0), {});
  EXPECT_EQ(device->counters().h2d_bytes - before, own.h2d_bytes);
}

// An engine that is gone leaves nothing in the arena that the next one takes for its own.
TEST_P(Evaluation, MayFollowOneThatIsGone) {
  const Plan plan = plan_in(trainings.minimum_bytes());
  const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
  Engine engine(*device, training, plan, seeded());
  const Plan least = std::get<Plan>(evaluations.answer({.device = evaluations.minimum_bytes()}).outcome);
  const Plan most = beside(plan, training, graph, machine);
  StepInputs inputs(graph, vocabulary);
  std::vector<double> losses;
  for (const Plan* each : {&least, &most, &least, &most})
    losses.push_back(Engine(engine, graph, *each).step(inputs.of(0), {}).loss);
  EXPECT_EQ(losses, std::vector<double>(4, losses[0]));
}

// Values that are written between evaluations count, whichever of two engines evaluates.
TEST_P(Evaluation, SeesWhatWasWritten) {
  const Plan plan = plan_in(trainings.minimum_bytes());
  const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
  Engine engine(*device, training, plan, seeded());
  const Plan own = beside(plan, training, graph, machine);
  Engine first(engine, graph, own), second(engine, graph, own);
  StepInputs inputs(graph, vocabulary);
  const double before = first.step(inputs.of(0), {}).loss;
  EXPECT_EQ(second.step(inputs.of(0), {}).loss, before);
  for (TensorId id = 0; id < training.tensors.size(); ++id) {
    const Tensor& tensor = training.tensor(id);
    if (tensor.kind != TensorKind::parameter || !tensor.name.ends_with("norm.weight")) continue;
    engine.write(id, std::vector<std::byte>(tensor.bytes()));
  }
  const double after = second.step(inputs.of(0), {}).loss;
  EXPECT_NE(after, before);
  EXPECT_EQ(first.step(inputs.of(0), {}).loss, after);
  EXPECT_EQ(after, loss_of(engine, training, graph, inputs.of(0)));
}

// The loss of such a model is NaN, and the training goes on with the weights that it had.
TEST_P(Evaluation, ThatIsNotFiniteChangesNothing) {
  const Plan plan = plan_in(trainings.minimum_bytes());
  const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
  Engine engine(*device, training, plan, seeded());
  Engine evaluation(engine, graph, beside(plan, training, graph, machine));
  StepInputs steps(training, vocabulary), inputs(graph, vocabulary);
  make_step(engine, steps);
  const TensorId norm = named(training, "norm.weight");
  const std::vector<std::byte> value = engine.read(norm);
  engine.write(norm, std::vector<std::byte>(value.size(), std::byte{0xff}));
  EXPECT_THROW(evaluation.step(inputs.of(0), {}), NonFinite);
  engine.write(norm, value);
  EXPECT_EQ(evaluation.step(inputs.of(0), {}).loss, loss_of(engine, training, graph, inputs.of(0)));
  make_step(engine, steps);
  EXPECT_EQ(read_values(engine, training), run_evaluator(training, cpu_launch_table(), 2, vocabulary).values);
}

TEST_P(Evaluation, PlansAreValidAndAboveTheBound) {
  const Bytes least = evaluations.minimum_bytes(), need = evaluations.need_bytes();
  EXPECT_LT(need, trainings.need_bytes());
  EXPECT_LT(least, trainings.minimum_bytes());
  for (const Bytes budget : {least, (least + need) / 2, need}) {
    const Plan plan = std::get<Plan>(evaluations.answer({.device = budget}).outcome);
    EXPECT_EQ(validate(graph, plan, {.device = budget}), std::vector<std::string>());
    EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9));
    EXPECT_GT(plan.lower_bound_seconds, 0);
    EXPECT_LE(plan.device_peak_bytes, budget);
  }
  EXPECT_TRUE(std::holds_alternative<Infeasible>(evaluations.answer({.device = least - 1}).outcome));
}

INSTANTIATE_TEST_SUITE_P(Types, Evaluation, ::testing::Values(DataType::f32, DataType::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// The host updates some slices of a table that the plan keeps on the device.
TEST(EvaluationOfSlices, SeesWhatTheHostHasUpdated) {
  const Graph training = sliced_gpt();
  const Graph graph = sliced_gpt(DataType::f32, 1, GraphBuilder::Trained::none);
  for (std::uint32_t on_device = 0; on_device <= slices_of_table; ++on_device) {
    const Plan plan = plan_in_slices(training, {}, on_device);
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
    Engine engine(*device, training, plan, seeded());
    Engine evaluation(engine, graph, beside(plan, training, graph));
    StepInputs steps(training, sliced_vocabulary), inputs(graph, sliced_vocabulary);
    for (std::uint64_t step = 0; step < 3; ++step) {
      make_step(engine, steps);
      EXPECT_EQ(evaluation.step(inputs.of(step), {}).loss, loss_of(engine, training, graph, inputs.of(step)))
          << on_device << " of the table's slices are on the device";
    }
    EXPECT_EQ(read_values(engine, training),
              run_evaluator(training, cpu_launch_table(), 3, sliced_vocabulary).values);
  }
}

class EvaluationRefuses : public ::testing::Test {
 protected:
  const Graph training = training_graph(DataType::f32, sizes());
  const Graph graph = evaluation_graph(DataType::f32, sizes());
  const Machine machine;
  const Plan plan = std::get<Plan>(quick_plan(training, machine, {}, {.policy = Policy::none}));
  const std::unique_ptr<SimulatedDevice> device = open_simulated_device({.capacity = plan.device_peak_bytes});
  Engine engine{*device, training, plan, {}};
};

TEST_F(EvaluationRefuses, AGraphThatTrains) {
  expect_refused([&] { Engine(engine, training, plan); }, "Trained::none");
}

TEST_F(EvaluationRefuses, AnotherModel) {
  ModelConfig other = sizes();
  other.layers = 3;
  const Graph larger = evaluation_graph(DataType::f32, other);
  expect_refused([&] { Engine(engine, larger, quick_least_plan(larger, machine)); }, "layers.2.");
}

TEST_F(EvaluationRefuses, AnotherType) {
  const Graph narrow = evaluation_graph(DataType::bf16, sizes());
  expect_refused([&] { Engine(engine, narrow, quick_least_plan(narrow, machine)); }, "type and shape");
}

TEST_F(EvaluationRefuses, APlanThatDoesNotFit) {
  const Plan all = std::get<Plan>(quick_plan(graph, machine, {}));
  const Plan least = quick_least_plan(training, machine);
  const auto small = open_simulated_device({.capacity = least.device_peak_bytes});
  Engine streaming(*small, training, least, {});
  if (all.device_peak_bytes > free_between_steps(least).bytes())
    expect_refused([&] { Engine(streaming, graph, all); }, "plan within");
  else
    ADD_FAILURE() << "the plan of least memory has room for the whole model";
}

TEST_F(EvaluationRefuses, ValuesOfItsOwn) {
  Engine evaluation(engine, graph, beside(plan, training, graph));
  expect_refused([&] { Engine(evaluation, graph, beside(plan, training, graph)); }, "lends nothing");
  expect_refused([&] { evaluation.read(0); }, "no values of its own");
}

}  // namespace
}  // namespace stowage
