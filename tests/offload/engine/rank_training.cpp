#include "tests/offload/engine/rank_training.h"

#include <gtest/gtest.h>

#include <bit>
#include <exception>
#include <thread>

#include "stowage/engine.h"
#include "stowage/models.h"
#include "tests/offload/engine/training_run.h"

namespace stowage::testing {
namespace {

constexpr std::int32_t words = 13;
constexpr std::uint64_t training_steps = 4;
constexpr double most_norm = 3.2;  // of norms around it

ModelConfig config_of(const RankTraining& training, BatchShare share) {
  ModelConfig config;
  config.layers = 2;
  config.width = 24;
  config.heads = 2;
  config.vocabulary = words;
  config.sequence = 6;
  config.batch = 8;
  config.micro_batches = training.micro_batches;
  config.gradient_groups = 4;
  config.dropout = 0.2;
  config.rank = share.rank;
  config.ranks = share.ranks;
  return config;
}

}  // namespace

Graph rank_gpt(const RankTraining& training, BatchShare share) {
  GraphBuilder builder(training.type);
  const BuiltModel model = gpt(builder, config_of(training, share));
  return builder.finish(model.loss, {.weight_decay = 0.1, .clip = most_norm, .moments = training.moments});
}

Graph rank_bert(const RankTraining& training, BatchShare share) {
  GraphBuilder builder(training.type);
  ModelConfig config = config_of(training, share);
  config.pretraining = true;
  const BuiltModel model = bert(builder, config);
  return builder.finish(model.loss, {.weight_decay = 0.1, .clip = most_norm, .moments = training.moments});
}

Graph rank_deep_gpt(const RankTraining& training, BatchShare share) {
  ModelConfig config = config_of(training, share);
  config.layers = 11;
  config.width = 8;
  config.dropout = 0;
  GraphBuilder builder(training.type);
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, {.clip = most_norm});
}

RankResult train_rank(Device& device, const Graph& graph, const Plan& plan, const Machine& machine,
                      Communicator* communicator) {
  EngineOptions options;
  options.communicator = communicator;
  options.seed = run_seed;
  options.machine = machine;
  Engine engine(device, graph, plan, options);
  StepInputs inputs(graph, 2);  // tokens that are types and targets, too
  RankResult result;
  for (std::uint64_t step = 0; step < training_steps; ++step) {
    const StepReport report = make_step(engine, inputs);
    result.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
    result.norms.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    result.clipped.push_back(report.clip_scale < 1 ? 1 : 0);
  }
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state)
      result.values[tensor.name] = engine.read(id);
  }
  EXPECT_EQ(device.counters().highest_device_byte, plan.device_peak_bytes);
  return result;
}

RankResult joined(const std::vector<RankResult>& ranks, const RankResult& whole) {
  RankResult result = ranks.front();
  for (auto& [name, value] : result.values) {
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      const std::vector<std::byte>& more = ranks[rank].values.at(name);
      value.insert(value.end(), more.begin(), more.end());
    }
    value.resize(whole.values.at(name).size());
  }
  return result;
}

void on_ranks(std::uint32_t ranks, const std::function<void(std::uint32_t)>& body) {
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace stowage::testing
