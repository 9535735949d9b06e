// Coded activations: at the need, a fifth of it and the minimum, and taken over half way by another engine in
// another budget, a coded step leaves the bits of the Evaluator, and on 2 and 4 devices those of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/rank_training.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 5, steps_before = 2;
constexpr std::int32_t words = 2;  // inputs that are types and targets, too

struct Combination {
  const ModelFamily* family = nullptr;
  DataType type = DataType::f32;
  double dropout = 0;
  CodeBits bits = CodeBits::four;
  friend std::ostream& operator<<(std::ostream& out, const Combination& of) {
    return out << of.family->name << ' ' << to_string(of.type) << " dropout " << of.dropout << " bits "
               << static_cast<int>(of.bits);
  }
};

// Micro-batches of 128 tokens: results of the MLP's first product have 64 KiB in 32 bits, and so have those
// of queries, keys and values in 16.
Graph graph_of(const Combination& of, BatchShare share = {}) {
  const bool wide = size_of(of.type) == 2;
  ModelConfig config{.layers = 1, .width = wide ? 96 : 48, .heads = 2, .vocabulary = 16, .sequence = 32};
  config.batch = 16;
  config.micro_batches = config.gradient_groups = 4;
  config.rank = share.rank;
  config.ranks = share.ranks;
  config.dropout = of.dropout;
  config.code_activations = of.bits;
  if (of.family == &bert_family) {
    config.pretraining = true;
    config.keep_tokens = of.bits == CodeBits::four ? 0.5 : 1;
    if (config.keep_tokens < 1) config.sequence *= 2;
  }
  if (of.family == &llama_family) {
    config.key_heads = 1;
    config.head_width = wide ? 64 : 32;
  }
  if (of.family == &qwen3_family) config.head_norms = true;
  GraphBuilder builder(of.type);
  return builder.finish(of.family->build(builder, config).loss, {.clip = 1});
}

// Every combination; or with few draws a quarter of them, in which each two values of two properties meet.
std::vector<Combination> combinations() {
  const ModelFamily* const families[] = {&gpt_family, &bert_family, &llama_family, &qwen3_family};
  const DataType types[] = {DataType::f32, DataType::bf16, DataType::f16};
  std::vector<Combination> all;
  for (std::size_t family = 0; family < 4; ++family)
    for (std::size_t type = 0; type < 3; ++type)
      for (const bool drops : {false, true})
        for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
          const bool is_one = drops == ((family + type) % 2 == 1) &&
                              (bits == CodeBits::eight) == ((family / 2 + type) % 2 == 1);
          if (!fewer_draws || is_one) all.push_back({families[family], types[type], drops ? 0.1 : 0, bits});
        }
  return all;
}

constexpr Executor executor = Executor::virtual_time;

class CodedEngine : public ::testing::TestWithParam<Combination> {
 protected:
  // Plans of few candidates: fast, and as varied as others.
  static std::vector<Plan> plans_of(const Graph& graph) {
    PlanOptions options;
    take_few_candidates(options);
    Planner planner(graph, machine, options);
    const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
    std::vector<Plan> plans;
    for (const Bytes budget : {need, std::max(least, need / 5), least}) {
      plans.push_back(std::get<Plan>(planner.answer({.device = budget}).outcome));
      EXPECT_LE(plans.back().device_peak_bytes, budget);
    }
    return plans;
  }

  // An engine with a device of its own that holds the plan and no byte more.
  struct Run {
    std::unique_ptr<SimulatedDevice> device;
    Engine engine;
    Run(const Graph& graph, const Plan& plan, std::uint64_t first_step)
        : device(open_simulated_device({.capacity = plan.device_peak_bytes, .executor = executor})),
          engine(*device, graph, plan, options(first_step)) {}
    static EngineOptions options(std::uint64_t first_step) {
      EngineOptions options;
      options.seed = run_seed;
      options.first_step = first_step;
      return options;
    }
  };

  static void append(const TrainingRun& more, TrainingRun& run) {
    run.losses.insert(run.losses.end(), more.losses.begin(), more.losses.end());
    run.norms.insert(run.norms.end(), more.norms.begin(), more.norms.end());
    run.values = more.values;
  }

  // Each plan for another number of ranks.
  static std::vector<RankResult> train(std::uint32_t ranks) {
    const Plan plan = plans_of(graph_of(GetParam(), {0, ranks}))[std::min(ranks / 2, 2U)];
    std::vector<std::unique_ptr<SimulatedDevice>> devices;
    std::vector<Device*> all;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      devices.push_back(open_simulated_device({.capacity = plan.device_peak_bytes, .executor = executor}));
      all.push_back(devices.back().get());
    }
    const auto communicators = make_local_communicators(all);
    std::vector<RankResult> results(ranks);
    on_ranks(ranks, [&](std::uint32_t rank) {
      results[rank] = train_rank(*all[rank], graph_of(GetParam(), {rank, ranks}), plan, machine,
                                 ranks == 1 ? nullptr : communicators[rank].get());
      communicators[rank]->barrier();
    });
    return results;
  }

  static inline const Machine machine = [] {
    Machine machine;
    machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = 1e9;
    machine.peer = machine.h2d;
    return machine;
  }();
};

INSTANTIATE_TEST_SUITE_P(All, CodedEngine, ::testing::ValuesIn(combinations()));

TEST_P(CodedEngine, LeavesTheBitsOfTheEvaluatorInAnyBudget) {
  const Graph graph = graph_of(GetParam());
  const auto encodes =
      std::count_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.kernel == "encode"; });
  ASSERT_GE(encodes, GetParam().family == &gpt_family || GetParam().family == &bert_family ? 8 : 12);
  const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), steps, words);
  const std::vector<Plan> plans = plans_of(graph);
  for (const Plan& plan : plans) {
    Run run(graph, plan, 0);
    EXPECT_TRUE(run_engine(run.engine, graph, steps, words) == expected) << plan.device_peak_bytes;
    EXPECT_EQ(run.device->counters().highest_device_byte, plan.device_peak_bytes);
  }
  Run before(graph, plans[0], 0), after(graph, plans[2], steps_before);
  TrainingRun run = run_engine(before.engine, graph, steps_before, words);
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (!run.values[id].empty()) after.engine.write(id, run.values[id]);
  append(run_engine(after.engine, graph, steps, words), run);
  EXPECT_TRUE(run == expected) << "goes on in another budget";
}

TEST_P(CodedEngine, LeavesTheBitsOnSeveralDevices) {
  const RankResult alone = train(1).front();
  for (const std::uint32_t ranks : {2U, 4U}) {
    const std::vector<RankResult> together = train(ranks);
    EXPECT_EQ(together.front().losses, alone.losses) << ranks;
    EXPECT_EQ(together.front().norms, alone.norms) << ranks;
    EXPECT_TRUE(joined(together, alone).values == alone.values) << ranks;
  }
}

}  // namespace
}  // namespace stowage
