#include "offload/engine/non_finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::HasSubstr;
using Origin = NonFinite::Origin;

constexpr std::int32_t vocabulary = 64;
constexpr std::uint64_t steps = 3;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

Graph gpt_graph() {
  GraphBuilder builder;
  ModelConfig config{.layers = 2,
                     .width = 16,
                     .heads = 2,
                     .vocabulary = vocabulary,
                     .sequence = 8,
                     .batch = 2,
                     .dropout = 0.1};
  config.padded_vocabulary = 2 * vocabulary;
  return builder.finish(gpt(builder, config).loss, AdamW{});
}

Graph bert_graph() {
  GraphBuilder builder;
  ModelConfig config{.layers = 1,
                     .width = 16,
                     .heads = 2,
                     .vocabulary = vocabulary,
                     .sequence = 8,
                     .batch = 2,
                     .dropout = 0.1};
  config.pretraining = true;
  return builder.finish(bert(builder, config).loss, AdamW{});
}

TensorId tensor_named(const Graph& graph, const std::string& name) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensor(id).name == name) return id;
  ADD_FAILURE() << "no tensor '" << name << "'";
  return 0;
}

const Op& first_reader(const Graph& graph, TensorId tensor) {
  return *std::find_if(graph.ops.begin(), graph.ops.end(), [tensor](const Op& op) {
    return std::find(op.reads.begin(), op.reads.end(), tensor) != op.reads.end();
  });
}

// BERT's inputs are token types and answers of two kinds too.
std::int32_t range_of(const Graph& graph) {
  const bool has_types = std::any_of(graph.tensors.begin(), graph.tensors.end(),
                                     [](const Tensor& tensor) { return tensor.name == "token_types"; });
  return has_types ? 2 : vocabulary;
}

// Everything on the device; and, over a slow link, with replays and transfers.
std::vector<Plan> plans_of(const Graph& graph) {
  constexpr Link slow{.bytes_per_second = 1e6, .latency_seconds = 1e-6};
  const Machine machine{.h2d = slow, .d2h = slow};
  Planner planner = quick_planner(graph, machine);
  const Bytes least = planner.minimum_bytes();
  const Bytes budget = least + (planner.need_bytes() - least) / 8;
  return {std::get<Plan>(quick_plan(graph, machine, {}, {.policy = Policy::none})),
          std::get<Plan>(planner.answer({.device = budget}).outcome)};
}

EngineOptions engine_options(const LaunchTable& kernels = cpu_launch_table()) {
  EngineOptions options;
  options.seed = run_seed;
  options.kernels = kernels;
  return options;
}

// What the step throws; the engine's values and step are then as they were.
NonFinite::Finding finding_of(Engine& engine, const Graph& graph, StepInputs& inputs) {
  const std::uint64_t step = engine.completed_steps();
  const auto before = read_values(engine, graph);
  try {
    make_step(engine, inputs);
    ADD_FAILURE() << "the step was made";
    return {};
  } catch (const NonFinite& error) {
    EXPECT_EQ(engine.completed_steps(), step);
    EXPECT_TRUE(read_values(engine, graph) == before);
    EXPECT_FALSE(error.step_counted());
    EXPECT_EQ(error.finding().step, step);
    EXPECT_THAT(error.what(), HasSubstr("step " + std::to_string(step) + ": loss "));
    EXPECT_THAT(error.what(), HasSubstr(error.finding().text));
    EXPECT_THAT(error.what(), HasSubstr("weights are as of " + std::to_string(step) + " completed steps: "));
    if (error.finding().origin != Origin::unknown) {
      EXPECT_THAT(error.what(), HasSubstr("'" + error.op() + "'"));
      EXPECT_THAT(error.what(), HasSubstr("'" + error.finding().tensor + "'"));
    }
    NonFinite::Finding finding = error.finding();
    finding.text = error.op();
    return finding;
  }
}

void fill(Engine& engine, const Graph& graph, const std::string& name, float value, std::size_t from = 0,
          std::size_t count = std::numeric_limits<std::size_t>::max()) {
  const TensorId id = tensor_named(graph, name);
  std::vector<std::byte> bytes = engine.read(id);
  for (std::size_t i = from; i < bytes.size() / sizeof value && i - from < count; ++i)
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  engine.write(id, bytes);
}

class NonFiniteSteps : public ::testing::TestWithParam<Executor> {
 protected:
  // Runs `action` on an engine of each plan that has made one step, then writes back what was there: the run
  // must go on as if nothing had been.
  template <class Action>
  static void on_each_plan(const Graph& graph, const LaunchTable& kernels, Action action) {
    const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), steps, range_of(graph));
    const std::vector<Plan> plans = plans_of(graph);
    for (const InstructionKind kind : {InstructionKind::recompute, InstructionKind::prefetch})
      EXPECT_TRUE(std::any_of(plans[1].instructions.begin(), plans[1].instructions.end(),
                              [kind](const Instruction& each) { return each.kind == kind; }));
    for (const Plan& plan : plans) {
      const auto device = open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam()});
      Engine engine(*device, graph, plan, engine_options(kernels));
      StepInputs inputs(graph, range_of(graph));
      make_step(engine, inputs);
      const auto values = read_values(engine, graph);
      action(engine, inputs);
      for (TensorId id = 0; id < values.size(); ++id)
        if (!values[id].empty()) engine.write(id, values[id]);
      EXPECT_TRUE(run_engine(engine, graph, steps, range_of(graph)).values == expected.values);
      EXPECT_EQ(device->counters().highest_device_byte, plan.device_peak_bytes);
    }
  }
};

// Near the end of forward: all results before it count as finite.
TEST_P(NonFiniteSteps, NameAParameterThatIsNotFiniteBefore) {
  const Graph gpt = gpt_graph();
  const Graph bert = bert_graph();
  for (const auto& [graph, name, bad] : {std::tuple{&gpt, "ln_f.weight", nan},
                                         {&gpt, "ln_f.weight", infinity},
                                         {&bert, "cls.predictions.transform.dense.weight", nan}}) {
    const std::string parameter = name;
    const float value = bad;
    const Graph& of = *graph;
    on_each_plan(of, cpu_launch_table(), [&](Engine& engine, StepInputs& inputs) {
      fill(engine, of, parameter, value, 5, 1);
      const NonFinite::Finding found = finding_of(engine, of, inputs);
      const Op& reader = first_reader(of, tensor_named(of, parameter));
      EXPECT_EQ(found.origin, Origin::given);
      EXPECT_EQ(found.tensor, parameter);
      EXPECT_EQ(found.text, reader.name);
      EXPECT_EQ(found.kernel, reader.kernel);
    });
  }
}

TEST_P(NonFiniteSteps, NameTheOpThatOverflows) {
  const Graph graph = gpt_graph();
  on_each_plan(graph, cpu_launch_table(), [&](Engine& engine, StepInputs& inputs) {
    fill(engine, graph, "h.1.mlp.c_fc.weight", 1e25F);
    fill(engine, graph, "h.1.mlp.c_proj.weight", 1e25F);
    const NonFinite::Finding found = finding_of(engine, graph, inputs);
    const Op& reader = first_reader(graph, tensor_named(graph, "h.1.mlp.c_proj.weight"));
    EXPECT_EQ(found.origin, Origin::op);
    EXPECT_EQ(found.text, reader.name);
    EXPECT_EQ(found.tensor, graph.tensor(reader.writes[0]).name);
    // The same step again ends in the same error, and in the same words.
    EXPECT_EQ(finding_of(engine, graph, inputs).text, found.text);
  });
}

// A kernel of the CPU's that spoils the last element of the first result of one op while `spoiled_runs`
// lasts. Kernels are plain functions: what they know is global.
std::atomic<Kernel> honest_kernel = nullptr;
std::atomic<const Op*> spoiled_op = nullptr;
std::atomic<int> spoiled_runs = 0;

void spoil(const LaunchArguments& arguments) {
  honest_kernel.load()(arguments);
  if (arguments.op->name != spoiled_op.load()->name || spoiled_runs == 0) return;
  --spoiled_runs;
  const Operand& operand = arguments.writes[0];
  std::memcpy(static_cast<std::byte*>(operand.data) + operand.tensor->bytes() - sizeof nan, &nan, sizeof nan);
}

LaunchTable table_that_spoils(const Op& op) {
  LaunchTable table = cpu_launch_table();
  honest_kernel = table.find(op);
  spoiled_op = &op;
  spoiled_runs = 0;
  table.add(op.kernel, spoil);
  return table;
}

// The last op of backward that makes no sum of squares: all results of the step count as finite before it.
const Op& last_backward_op(const Graph& graph) {
  return *std::find_if(graph.ops.rbegin(), graph.ops.rend(),
                       [](const Op& op) { return op.phase == Phase::backward && op.kernel != "square_sum"; });
}

TEST_P(NonFiniteSteps, TakeNoFiniteResultForAnother) {
  for (const Graph& graph : {gpt_graph(), bert_graph()}) {
    const Op& last = last_backward_op(graph);
    on_each_plan(graph, table_that_spoils(last), [&](Engine& engine, StepInputs& inputs) {
      spoiled_runs = 2;
      const NonFinite::Finding found = finding_of(engine, graph, inputs);
      EXPECT_EQ(found.origin, Origin::op);
      EXPECT_EQ(found.text, last.name);
      EXPECT_EQ(found.tensor, graph.tensor(last.writes[0]).name);
      EXPECT_EQ(spoiled_runs, 0);
    });
  }
}

TEST_P(NonFiniteSteps, SayThatTheSameStepIsFiniteTheSecondTime) {
  const Graph graph = gpt_graph();
  on_each_plan(graph, table_that_spoils(last_backward_op(graph)), [&](Engine& engine, StepInputs& inputs) {
    spoiled_runs = 1;
    const NonFinite::Finding found = finding_of(engine, graph, inputs);
    EXPECT_EQ(found.origin, Origin::unknown);
    EXPECT_EQ(found.tensor, "");
  });
}

// tiny_kernels square in f32, here also under the name of another kernel of the norm.
TEST_P(NonFiniteSteps, SayThatOnlyTheNormOverflows) {
  LaunchTable table = tiny_kernels();
  table.add("norm_part", table.find_if_present("square_sum"));
  for (const std::string kernel : {"square_sum", "norm_part"}) {
    Graph graph = tiny_graph();
    for (Op& op : graph.ops) op.kernel = op.kernel == "square_sum" ? kernel : op.kernel;
    for (const Plan& plan : {tiny_streamed_plan(), tiny_resident_plan()}) {
      const auto device = open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam()});
      Engine engine(*device, graph, plan, engine_options(table));
      StepInputs inputs(graph, 5);
      fill(engine, graph, graph.tensor(tiny_weight).name, 1e25F);
      const NonFinite::Finding found = finding_of(engine, graph, inputs);
      EXPECT_EQ(found.origin, Origin::norm);
      EXPECT_EQ(found.kernel, kernel);
      EXPECT_TRUE(std::isfinite(found.loss));
      EXPECT_FALSE(std::isfinite(found.grad_norm));
    }
  }
}

// Every device call of such a step fails once, those of the search among them.
TEST_P(NonFiniteSteps, FailAtAStepBoundaryToo) {
  const Graph graph = tiny_graph();
  const TrainingRun expected = run_evaluator(graph, tiny_kernels(), steps, 5);
  for (const Plan& plan : {tiny_streamed_plan(), tiny_resident_plan()}) {
    for (const Fault::Kind kind : {Fault::Kind::call, Fault::Kind::work}) {
      std::uint64_t index = 0;
      int others = 0;
      for (bool fired = true; fired && !HasFailure(); ++index) {
        const auto device =
            open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam()});
        Engine engine(*device, graph, plan, engine_options(tiny_kernels()));
        StepInputs inputs(graph, 5);
        make_step(engine, inputs);
        const auto values = read_values(engine, graph);
        fill(engine, graph, graph.tensor(tiny_weight).name, nan, 7, 1);
        device->set_fault({index, kind});
        try {
          make_step(engine, inputs);
          ADD_FAILURE() << "the step was made";
        } catch (const NonFinite& error) {
          EXPECT_EQ(error.finding().tensor, graph.tensor(tiny_weight).name);
        } catch (const StepError& error) {
          EXPECT_FALSE(error.step_counted()) << error.what();
          ++others;
        }
        fired = device->fault_fired();
        device->clear_fault();
        EXPECT_EQ(engine.completed_steps(), 1U);
        engine.write(tiny_weight, values[tiny_weight]);
        EXPECT_TRUE(read_values(engine, graph) == values);
        EXPECT_TRUE(run_engine(engine, graph, steps, 5).values == expected.values);
      }
      // Twice the calls up to the gate at least: the step and the search.
      EXPECT_GT(index, 2 * plan.gate);
      EXPECT_GT(others, static_cast<int>(2 * plan.gate));
    }
  }
}

TEST_P(NonFiniteSteps, AreFoundInVerifyModeToo) {
  const Graph graph = gpt_graph();
  const Plan plan = plans_of(graph).back();
  const auto device = open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam()});
  EngineOptions options = engine_options();
  options.verify_recompute = true;
  Engine engine(*device, graph, plan, options);
  StepInputs inputs(graph, vocabulary);
  EXPECT_GT(make_step(engine, inputs).verified_replays, 0U);
  const auto values = read_values(engine, graph);
  fill(engine, graph, "wpe.weight", nan, 0, 1);
  EXPECT_EQ(finding_of(engine, graph, inputs).tensor, "wpe.weight");
  const TensorId id = tensor_named(graph, "wpe.weight");
  engine.write(id, values[id]);
  EXPECT_GT(make_step(engine, inputs).verified_replays, 0U);
}

INSTANTIATE_TEST_SUITE_P(Executors, NonFiniteSteps,
                         ::testing::Values(Executor::threaded, Executor::virtual_time), [](const auto& info) {
                           return info.param == Executor::threaded ? "threaded" : "virtual_time";
                         });

}  // namespace
}  // namespace stowage
