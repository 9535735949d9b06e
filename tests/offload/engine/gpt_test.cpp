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
  const BuiltModel model = gpt(builder, {.layers = 2,
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

  enum class Memory : std::uint8_t { as_in_case, least };

  // Under one plan, with both executors.
  static void expect_same_bits_of_both(Case c, Memory memory = Memory::as_in_case) {
    Planner planner = quick_planner(graph(), c.machine, c.options);
    if (memory == Memory::least) c.budget = planner.minimum_bytes();
    for (Executor executor : {Executor::virtual_time, Executor::threaded}) {
      c.executor = executor;
      expect_same_bits(c, planner);
    }
  }

  static void expect_same_bits(const Case& c, Planner& planner) {
    const auto planned = planner.answer({.device = c.budget}).outcome;
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
  expect_same_bits_of_both({.options = {.policy = Policy::none}});
}

// The emulations of other systems run in the same engine.
TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorWithEveryPolicy) {
  for (Policy policy : every_policy)
    for (Bytes bucket_bytes : {Bytes{0}, 8_KiB}) {
      SCOPED_TRACE(to_string(policy));
      expect_same_bits_of_both({.options = {.policy = policy, .bucket_bytes = bucket_bytes}}, Memory::least);
    }
}

TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorWithUnlimitedMemory) { expect_same_bits_of_both({}); }

TEST_P(GptEngine, LeavesTheBitsOfTheEvaluatorInTheLeastMemory) {
  for (Bytes bucket_bytes : {Bytes{0}, 1_KiB, 8_KiB, 1_MiB})
    expect_same_bits_of_both({.options = {.bucket_bytes = bucket_bytes}}, Memory::least);
}

// A device in virtual time that is what the planner believes it to be: from the second step on, every
// step and every instruction takes the time, and has the place, that `simulate` gives it.
TEST_P(GptEngine, TakesThePredictedTime) {
  const Machine machine;
  const PlanOptions options{.bucket_bytes = 8_KiB};
  Planner planner = quick_planner(graph(), machine, options);
  const Bytes minimum = planner.minimum_bytes();
  for (const auto& planned :
       {planner.answer({.device = minimum}).outcome, planner.answer({.device = 2 * minimum}).outcome,
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

// A case without its budget.
Case random_case(std::uint64_t seed) {
  constexpr Bytes sizes[] = {0, 1_KiB, 3000, 8_KiB, 20_KiB, 64_KiB};
  Case c;
  c.machine = random_machine(seed);
  c.options.bucket_bytes = sizes[seed % 6];
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
    Case c = random_case(seed);
    Planner planner = quick_planner(graph(), c.machine, c.options);
    c.budget = random_budget(seed, planner.minimum_bytes(), planner.need_bytes());
    expect_same_bits(c, planner);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GptEngine, ::testing::Values(DataType::f32, DataType::bf16, DataType::f16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace stowage
