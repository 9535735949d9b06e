// The stages of a pipeline, each with an engine and a plan of its own, leave the bits of the whole step. The
// test carries what they send to those that receive it.
#include "tests/support/stages.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "stowage/engine.h"
#include "stowage/error.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/graph_queries.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 3;
constexpr std::int32_t vocabulary = 48;

// Values on their way between stages. They stay until the end, so that several stages can receive one.
class Mail {
 public:
  void put(std::uint64_t step, const std::string& name, std::vector<std::byte> value) {
    const std::lock_guard lock(mutex_);
    values_.insert_or_assign({step, name}, std::move(value));
    came_.notify_all();
  }
  // Waits for the value. Throws if none comes, as where two stages wait for each other.
  std::vector<std::byte> take(std::uint64_t step, const std::string& name) {
    std::unique_lock lock(mutex_);
    const std::pair key{step, name};
    if (!came_.wait_for(lock, std::chrono::seconds(60), [&] { return values_.contains(key); }))
      throw std::runtime_error("nobody sends " + name);
    return values_.at(key);
  }
  void clear() { values_.clear(); }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<std::pair<std::uint64_t, std::string>, std::vector<std::byte>> values_;
};
Mail mail;

void send(const LaunchArguments& arguments) {
  for (const Operand& value : arguments.reads) {
    const auto* data = static_cast<const std::byte*>(value.data);
    mail.put(arguments.step.step, value.tensor->name, {data, data + value.tensor->bytes()});
  }
}
void receive(const LaunchArguments& arguments) {
  for (const Operand& value : arguments.writes) {
    const std::vector<std::byte> sent = mail.take(arguments.step.step, value.tensor->name);
    std::memcpy(value.data, sent.data(), sent.size());
  }
}

// A training run by names: what the stages together must leave.
struct Run {
  std::vector<std::uint64_t> losses, norms;
  std::map<std::string, std::vector<std::byte>> values;
};

Run whole_run(const Graph& graph) {
  const TrainingRun run = run_evaluator(graph, cpu_launch_table(), steps, vocabulary);
  Run found{run.losses, run.norms, {}};
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (!run.values[id].empty()) found.values[graph.tensor(id).name] = run.values[id];
  return found;
}

// Steps of one stage in the order of its plan. The inputs are those of the whole graph with the same names.
Run stage_run(const Graph& whole, const Graph& stage, const Plan& plan) {
  const auto device =
      open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
  EngineOptions options;
  options.seed = run_seed;
  options.kernels = cpu_launch_table();
  options.kernels->add("send", send);
  options.kernels->add("receive", receive);
  Engine engine(*device, stage, plan, options);
  StepInputs inputs(whole, vocabulary);
  Run run;
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::vector<InputData> own;
    for (const InputData& input : inputs.of(step))
      for (TensorId id = 0; id < stage.tensors.size(); ++id)
        if (stage.tensor(id).name == whole.tensor(input.tensor).name) own.push_back({id, input.values});
    const StepReport report = engine.step(own, {learning_rate(step)});
    run.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
    run.norms.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
  }
  const auto values = read_values(engine, stage);
  for (TensorId id = 0; id < stage.tensors.size(); ++id)
    if (!values[id].empty()) run.values[stage.tensor(id).name] = values[id];
  EXPECT_EQ(device->counters().highest_device_byte, plan.device_peak_bytes);
  return run;
}

// Plans every stage at `part` of the way from its minimum to its need, and runs them together.
void expect_bits_of_the_whole(const Graph& graph, const Run& expected, const std::vector<Graph>& stages,
                              double part) {
  const Machine machine;
  std::vector<Plan> plans;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto ahead = std::min(graph.micro_batches, static_cast<std::uint32_t>(stages.size() - s));
    const PlanOptions options{.order = MicroBatchOrder::ahead(ahead)};
    Planner planner = quick_planner(stages[s], machine, options);
    const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
    const Bytes budget =
        least + static_cast<Bytes>(part * static_cast<double>(std::max(need, least) - least));
    const Answer answer = planner.answer({budget, unlimited});
    ASSERT_TRUE(std::holds_alternative<Plan>(answer.outcome));
    plans.push_back(std::get<Plan>(answer.outcome));
    EXPECT_TRUE(validate(stages[s], plans.back(), {budget, unlimited}).empty())
        << validate(stages[s], plans.back(), {budget, unlimited}).front();
    EXPECT_LE(plans.back().lower_bound_seconds, plans.back().predicted_step_seconds * (1 + 1e-9));
  }
  mail.clear();
  std::vector<Run> runs(stages.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t s = 0; s < stages.size(); ++s)
      threads.emplace_back([&, s] {
        try {
          runs[s] = stage_run(graph, stages[s], plans[s]);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "stage " << s << ": " << error.what();
        }
      });
  }
  EXPECT_EQ(runs.back().losses, expected.losses);
  std::size_t values = 0;
  for (const Run& run : runs) {
    EXPECT_EQ(run.norms, expected.norms);
    values += run.values.size();
    for (const auto& [name, value] : run.values) EXPECT_TRUE(value == expected.values.at(name)) << name;
  }
  EXPECT_EQ(values, expected.values.size()) << "each parameter belongs to one stage";
}

ModelConfig small(std::int64_t micro_batches) {
  ModelConfig config;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.vocabulary = vocabulary;
  config.sequence = 8;
  config.batch = 4;
  config.micro_batches = micro_batches;
  config.dropout = 0.1;
  config.head_tokens = 12;
  return config;
}
Graph make(const ModelConfig& config, const ModelFamily& family, DataType type, double clip = 0.5) {
  GraphBuilder builder(type);
  AdamW optimizer;
  optimizer.clip = clip;
  return builder.finish(family.build(builder, config).loss, optimizer);
}
std::uint32_t half_blocks(const Graph& graph) {
  return static_cast<std::uint32_t>(graph.unit_names.size()) / graph.micro_batches;
}

struct Partition {
  std::vector<std::uint32_t> cuts;
  std::size_t ranges = 1;  // of each stage
};
using Partitions = std::vector<Partition>;
// Of embedding, two blocks of two halves, head.
const Partitions of_six{
    {{0, 1, 3, 5, 6}},          {{0, 1, 3, 4, 6}, 2},      {{0, 3, 6}}, {{0, 2, 4, 6}}, {{0, 1, 6}},
    {{0, 1, 2, 3, 4, 5, 6}, 3}, {{0, 1, 2, 3, 4, 5, 6}, 2}};

// All partitions of full draws, and of few draws the first `most`.
void expect_bits_of_stages(const Graph& graph, std::size_t most = 1, Partitions partitions = of_six) {
  const Run expected = whole_run(graph);
  ASSERT_EQ(half_blocks(graph), partitions.front().cuts.back());
  if (fewer_draws) partitions.resize(most);
  for (const Partition& partition : partitions) {
    const std::vector<Graph> stages = stages_of(graph, partition.cuts, partition.ranges);
    SCOPED_TRACE(::testing::Message() << stages.size() << " stages of " << partition.ranges << " ranges");
    for (const double part : fewer_draws ? std::vector{0.0} : std::vector{0.0, 0.5, 1.0})
      expect_bits_of_the_whole(graph, expected, stages, part);
  }
}

TEST(Stages, GptLeavesTheBitsOfTheWhole) {
  for (const std::int64_t parts : {4, 1, 2}) {
    if (fewer_draws && parts == 2) continue;
    SCOPED_TRACE(parts);
    expect_bits_of_stages(make(small(parts), gpt_family, DataType::f32), 3);
  }
  expect_bits_of_stages(make(small(4), gpt_family, DataType::bf16));
}

TEST(Stages, BertLeavesTheBitsOfTheWhole) {
  expect_bits_of_stages(make(small(4), bert_family, DataType::f32));
  expect_bits_of_stages(make(small(2), bert_family, DataType::bf16));
}

// A table of three blocks of rows, which several stages use: three half-blocks at either end.
TEST(Stages, LlamaWithATableInBlocksLeavesTheBitsOfTheWhole) {
  ModelConfig config = small(2);
  config.dropout = 0;
  config.table_rows = 16;
  expect_bits_of_stages(make(config, llama_family, DataType::f32), 1,
                        {{{0, 2, 5, 8, 10}}, {{0, 2, 5, 8, 10}, 2}, {{0, 4, 10}}, {{0, 9, 10}}});
}

}  // namespace
}  // namespace stowage
