// A small GPT under many budgets, bucket sizes, links, executors and thread counts: always the bits
// of the Evaluator, never a byte above the budget, and exactly the planned transfers.
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "src/base/parallel_for.h"
#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 4;
constexpr std::int32_t vocabulary = 64;

Graph make_gpt(DataType type) {
  GraphBuilder builder(type);
  const Gpt model = gpt(builder, {.layers = 2,
                                  .width = 32,
                                  .heads = 2,
                                  .vocabulary = vocabulary,
                                  .sequence = 16,
                                  .batch = 2,
                                  .dropout = 0.1});
  return builder.finish(model.loss, AdamW{});
}

struct Case {
  Bytes budget = unlimited;
  PlanOptions options = {};
  Machine machine = {};
  Executor executor = Executor::virtual_time;
  Link link = Link::unthrottled();  // of the device
  int threads = 2;
};

// A graph, and what a run of it leaves.
struct Reference {
  explicit Reference(DataType type)
      : graph(make_gpt(type)), run(run_evaluator(graph, cpu_launch_table(), steps, vocabulary)) {}

  Graph graph;
  TrainingRun run;
};

const Reference& reference(DataType type) {
  static std::map<DataType, Reference> made;
  return made.try_emplace(type, type).first->second;
}

class GptEngine : public ::testing::TestWithParam<DataType> {
 protected:
  static const Graph& graph() { return reference(GetParam()).graph; }

  static void expect_same_bits(const Case& c) {
    const auto planned = quick_plan(graph(), c.machine, {.device = c.budget}, c.options);
    ASSERT_TRUE(std::holds_alternative<Plan>(planned));
    const Plan& plan = std::get<Plan>(planned);
    ASSERT_LE(plan.device_peak_bytes, c.budget);
    const auto device =
        open_simulated_device({.capacity = c.budget == unlimited ? plan.device_peak_bytes : c.budget,
                               .executor = c.executor,
                               .h2d = c.link,
                               .d2h = c.link});
    set_parallel_threads(c.threads);
    EngineOptions options;
    options.seed = run_seed;
    options.machine = c.machine;
    Engine engine(*device, graph(), plan, options);
    expect_planned_bytes(engine, plan);
    set_parallel_threads(0);
    EXPECT_EQ(device->counters().highest_device_byte, plan.device_peak_bytes);
  }

  static void expect_planned_bytes(Engine& engine, const Plan& plan) {
    StepInputs inputs(graph(), vocabulary);
    const TrainingRun& expected = reference(GetParam()).run;
    TrainingRun run;
    while (engine.completed_steps() < steps) {
      const StepReport report = make_step(engine, inputs);
      EXPECT_EQ(report.h2d_bytes, plan.h2d_bytes);
      EXPECT_EQ(report.d2h_bytes, plan.d2h_bytes);
      run.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
      run.norms.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    }
    run.values = read_values(engine, graph());
    EXPECT_EQ(run.losses, expected.losses);
    EXPECT_EQ(run.norms, expected.norms);
    EXPECT_TRUE(run.values == expected.values);
  }

  // But for where second 0 is.
  static void expect_same_intervals(const std::vector<Interval>& measured,
                                    const std::vector<Interval>& planned) {
    ASSERT_EQ(measured.size(), planned.size());
    double earliest = measured[0].begin;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      earliest = std::min(earliest, measured[i].begin);
      EXPECT_NEAR(measured[i].begin - measured[0].begin, planned[i].begin - planned[0].begin, 1e-12) << i;
      EXPECT_NEAR(measured[i].end - measured[0].begin, planned[i].end - planned[0].begin, 1e-12) << i;
    }
    EXPECT_EQ(earliest, 0);
  }
};

TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorWithoutOffload) {
  for (Executor executor : {Executor::virtual_time, Executor::threaded})
    expect_same_bits({.options = {.policy = Policy::none}, .executor = executor});
}

// The emulations of other systems run in the same engine.
TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorWithEveryPolicy) {
  for (Policy policy : every_policy)
    for (Bytes bucket_bytes : {Bytes{0}, 8_KiB})
      for (Executor executor : {Executor::virtual_time, Executor::threaded}) {
        SCOPED_TRACE(to_string(policy));
        Case c{.options = {.policy = policy, .bucket_bytes = bucket_bytes}, .executor = executor};
        c.budget = minimum_bytes(graph(), c.machine, c.options);
        expect_same_bits(c);
      }
}

TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorWithUnlimitedMemory) {
  for (Executor executor : {Executor::virtual_time, Executor::threaded})
    expect_same_bits({.executor = executor});
}

TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorInTheLeastMemory) {
  for (Bytes bucket_bytes : {Bytes{0}, 1_KiB, 8_KiB, 1_MiB})
    for (Executor executor : {Executor::virtual_time, Executor::threaded}) {
      Case c{.options = {.bucket_bytes = bucket_bytes}, .executor = executor};
      c.budget = minimum_bytes(graph(), c.machine, c.options);
      expect_same_bits(c);
    }
}

// A device in virtual time that is what the planner believes it to be: from the second step on, every
// step and every instruction takes the time, and has the place, that `simulate` gives it.
TEST_P(GptEngine, TakesThePredictedTime) {
  const Machine machine;
  const PlanOptions options{.bucket_bytes = 8_KiB};
  const Bytes minimum = minimum_bytes(graph(), machine, options);
  for (const auto& planned : {quick_plan(graph(), machine, {.device = minimum}, options),
                              quick_plan(graph(), machine, {.device = 2 * minimum}, options),
                              quick_plan(graph(), machine, {}, {.policy = Policy::none}),
                              quick_plan(graph(), machine, {}, {.policy = Policy::zero_offload}),
                              quick_plan(graph(), machine, {}, {.policy = Policy::zero_infinity})}) {
    const Plan& plan = std::get<Plan>(planned);
    SCOPED_TRACE(plan.device_peak_bytes);
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes,
                                               .executor = Executor::virtual_time,
                                               .h2d = machine.h2d,
                                               .d2h = machine.d2h});
    EngineOptions engine_options;
    engine_options.machine = machine;
    engine_options.measurement = Measurement::timeline;
    Engine engine(*device, graph(), plan, engine_options);
    StepInputs inputs(graph(), vocabulary);
    StepReport report;
    for (int step = 0; step < 3; ++step) report = make_step(engine, inputs);
    EXPECT_NEAR(report.seconds, plan.predicted_step_seconds, 1e-12);
    EXPECT_NEAR(report.stall_fraction * report.seconds, plan.predicted_stall_seconds, 1e-12);
    expect_same_intervals(engine.last_timeline(), simulate(graph(), plan, machine).instructions);
  }
}

Case random_case(const Graph& graph, std::uint64_t seed) {
  constexpr Bytes sizes[] = {0, 1_KiB, 3000, 8_KiB, 20_KiB, 64_KiB};
  Case c;
  c.machine = random_machine(seed);
  c.options.bucket_bytes = sizes[seed % 6];
  c.budget = random_budget(seed, minimum_bytes(graph, c.machine, c.options), need_bytes(graph, c.machine));
  const std::uint64_t device = seed / 6 % 3;
  c.executor = device == 0 ? Executor::virtual_time : Executor::threaded;
  // What the planner believes of the link may be slow; what a test sleeps through may not.
  c.link = device == 0 ? c.machine.h2d : device == 1 ? Link::unthrottled() : Link{2e9, 1e-6, true};
  c.threads = seed / 18 % 2 == 0 ? 1 : 2;
  return c;
}

TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorInAnyBudget) {
  constexpr std::uint64_t count = draws<std::uint64_t>(60, 6);
  const std::uint64_t first = count * static_cast<std::uint64_t>(GetParam());  // no two types have the same
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    expect_same_bits(random_case(graph(), seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GptEngine, ::testing::Values(DataType::f32, DataType::bf16, DataType::f16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace stowage
