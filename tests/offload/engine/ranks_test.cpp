// Devices that train one model together, in one process: losses, norms and every byte of parameters and state
// are those of one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/expect_refused.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::int32_t words = 13;
constexpr std::uint64_t steps = 4;
constexpr double clip = 3.2;  // of norms around it

struct Training {
  DataType type = DataType::f32;
  Moments moments = Moments::f32;
  std::int64_t micro_batches = 4;
};

template <class Config>
Config config_of(const Training& training, BatchShare share) {
  Config config;
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

using MakeGraph = std::function<Graph(const Training&, BatchShare)>;

Graph make_gpt(const Training& training, BatchShare share) {
  GraphBuilder builder(training.type);
  const Gpt model = gpt(builder, config_of<GptConfig>(training, share));
  return builder.finish(model.loss, {.weight_decay = 0.1, .clip = clip, .moments = training.moments});
}
Graph make_bert(const Training& training, BatchShare share) {
  GraphBuilder builder(training.type);
  BertConfig config = config_of<BertConfig>(training, share);
  config.pretraining = true;
  const Bert model = bert(builder, config);
  return builder.finish(model.loss, {.weight_decay = 0.1, .clip = clip, .moments = training.moments});
}

// A rank's communicator that counts what the engine registers with it.
class WatchedCommunicator : public Communicator {
 public:
  WatchedCommunicator(Communicator& real, Device& device) : real_(real), device_(device) {}
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  void all_gather(LaneId lane, const void* share, void* whole, Bytes share_bytes,
                  Bytes whole_bytes) override {
    if (registrations > 0) {  // plans were compared before
      EXPECT_TRUE(is_registered(whole, whole_bytes) && is_registered(share, share_bytes)) << "gathered";
    }
    real_.all_gather(lane, share, whole, share_bytes, whole_bytes);
  }
  void exchange(LaneId lane, const void* whole, void* shares, Bytes share_bytes, Bytes whole_bytes) override {
    EXPECT_TRUE(is_registered(whole, whole_bytes) && is_registered(shares, share_bytes)) << "exchanged";
    real_.exchange(lane, whole, shares, share_bytes, whole_bytes);
  }
  void broadcast(LaneId lane, int root, void* data, Bytes bytes) override {
    real_.broadcast(lane, root, data, bytes);
  }
  void barrier() override { real_.barrier(); }
  void abort(std::string_view reason) override { real_.abort(reason); }
  void check() override { real_.check(); }
  void register_memory(void* address, Bytes bytes) override {
    ++registrations;
    at_ = static_cast<std::byte*>(address);
    bytes_ = bytes;
    free_ = device_.memory_info().free;
  }
  void forget_memory(void* address) override {
    EXPECT_EQ(address, at_);
    EXPECT_LE(device_.memory_info().free, free_) << "the memory was given up before";
    bytes_ = 0;
  }
  int registrations = 0;
  bool forgotten() const { return bytes_ == 0; }

 private:
  bool is_registered(const void* address, Bytes bytes) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return at_ <= at && at + bytes <= at_ + bytes_;
  }
  Communicator& real_;
  Device& device_;
  std::byte* at_ = nullptr;
  Bytes bytes_ = 0, free_ = 0;
};

// What a training leaves behind, parameters and state by name, without padding.
struct Result {
  std::vector<std::uint64_t> losses, norms, clipped;
  std::map<std::string, std::vector<std::byte>> values;
  friend bool operator==(const Result&, const Result&) = default;
};

struct Way {
  double part_of_range = 0;  // of device memory, from the least to all that is needed
  bool unlimited = false;    // as much as it takes
  Bytes bucket_bytes = 0;
  Executor executor = Executor::virtual_time;
  std::uint64_t machine = 1;
};

Plan plan_of(const Graph& graph, const Way& way) {
  Machine machine = random_machine(way.machine);
  machine.peer = machine.h2d;
  if (way.unlimited) return std::get<Plan>(quick_plan(graph, machine, {}, {.policy = Policy::none}));
  const PlanOptions options{.bucket_bytes = way.bucket_bytes};
  Planner planner = quick_planner(graph, machine, options);
  const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
  const auto budget = least + static_cast<Bytes>(way.part_of_range * static_cast<double>(need - least));
  const Plan plan = std::get<Plan>(planner.answer({.device = budget}).outcome);
  EXPECT_LE(plan.device_peak_bytes, budget);
  return plan;
}

std::unique_ptr<SimulatedDevice> device_for(const Plan& plan, const Way& way) {
  return open_simulated_device({.capacity = plan.device_peak_bytes, .executor = way.executor});
}

Result train(Device& device, const Graph& graph, const Plan& plan, const Way& way,
             Communicator* communicator) {
  EngineOptions options;
  options.communicator = communicator;
  options.seed = run_seed;
  options.machine = random_machine(way.machine);
  Engine engine(device, graph, plan, options);
  StepInputs inputs(graph, 2);  // tokens that are types and targets, too
  Result result;
  for (std::uint64_t step = 0; step < steps; ++step) {
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

Result train_alone(const MakeGraph& make, const Training& training, const Way& way) {
  const Graph graph = make(training, {});
  const Plan plan = plan_of(graph, way);
  const auto device = device_for(plan, way);
  return train(*device, graph, plan, way, nullptr);
}

// Calls body(rank) on a thread for each rank. The first error that one throws comes out.
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

// The ranks' shares one behind the other, cut to the bytes of the whole.
Result joined(const std::vector<Result>& ranks, const Result& whole) {
  Result result = ranks.front();
  for (auto& [name, value] : result.values) {
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      const std::vector<std::byte>& more = ranks[rank].values.at(name);
      value.insert(value.end(), more.begin(), more.end());
    }
    value.resize(whole.values.at(name).size());
  }
  return result;
}

std::vector<Result> train_together(const MakeGraph& make, const Training& training, std::uint32_t ranks,
                                   const Way& way) {
  const Plan plan = plan_of(make(training, {0, ranks}), way);
  std::vector<std::unique_ptr<SimulatedDevice>> devices;
  std::vector<Device*> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    devices.push_back(device_for(plan, way));
    all.push_back(devices.back().get());
  }
  const auto communicators = make_local_communicators(all);
  std::vector<Result> results(ranks);
  on_ranks(ranks, [&](std::uint32_t rank) {
    results[rank] =
        train(*devices[rank], make(training, {rank, ranks}), plan, way, communicators[rank].get());
    communicators[rank]->barrier();
  });
  return results;
}

void expect_the_bits_of(const Result& alone, const MakeGraph& make, const Training& training,
                        std::uint32_t ranks, const Way& way) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << way.part_of_range << " of the range");
  const std::vector<Result> results = train_together(make, training, ranks, way);
  for (const Result& result : results) {
    EXPECT_EQ(result.losses, alone.losses);
    EXPECT_EQ(result.norms, alone.norms);
  }
  EXPECT_EQ(joined(results, alone).values, alone.values);
}

Result one_device(const MakeGraph& make, const Training& training) {
  Result alone = train_alone(make, training, {});
  EXPECT_THAT(alone.clipped, ::testing::Contains(1U));
  EXPECT_THAT(alone.clipped, ::testing::Contains(0U));
  return alone;
}

void expect_the_bits_of_one_device(const MakeGraph& make) {
  const Result alone = one_device(make, {});
  if (!sanitized) expect_the_bits_of(alone, make, {}, 2, {});
  expect_the_bits_of(alone, make, {}, 2, {.part_of_range = 1, .executor = Executor::threaded, .machine = 3});
  expect_the_bits_of(alone, make, {}, 4, {.part_of_range = 0.4, .bucket_bytes = 1_KiB, .machine = 2});
}

TEST(Ranks, OfAGptLeaveTheBitsOfOneDevice) { expect_the_bits_of_one_device(make_gpt); }
TEST(Ranks, OfABertLeaveTheBitsOfOneDevice) { expect_the_bits_of_one_device(make_bert); }

TEST(Ranks, OfNarrowTypesAndMomentsLeaveTheBitsOfOneDevice) {
  for (const Training& training :
       {Training{.type = DataType::bf16, .micro_batches = 8}, Training{.type = DataType::f16},
        Training{.type = DataType::bf16, .moments = Moments::bf16}, Training{.moments = Moments::eight_bit}})
    if (!sanitized || training.type == DataType::f16)
      expect_the_bits_of(one_device(make_gpt, training), make_gpt, training, 4, {});
}

// More parameters than one op adds up the squares of.
Graph make_deep_gpt(const Training& training, BatchShare share) {
  GptConfig config = config_of<GptConfig>(training, share);
  config.layers = 11;
  config.width = 8;
  config.dropout = 0;
  GraphBuilder builder(training.type);
  const Gpt model = gpt(builder, config);
  return builder.finish(model.loss, {.clip = clip});
}

TEST(Ranks, OfADeepModelLeaveTheBitsOfOneDevice) {
  const Graph graph = make_deep_gpt({}, {0, 2});
  const auto parts = std::count_if(graph.ops.begin(), graph.ops.end(),
                                   [](const Op& op) { return op.kernel == "norm_part"; });
  EXPECT_EQ(parts, 2);
  const Way all_on_the_device{.unlimited = true};
  expect_the_bits_of(train_alone(make_deep_gpt, {}, all_on_the_device), make_deep_gpt, {}, 2,
                     all_on_the_device);
}

// All that collectives touch is the arena, which the communicator knows for as long as the engine has it.
TEST(Ranks, RegisterTheArenaOnceAndForgetItBeforeItIsGivenUp) {
  const Training training;
  const Plan plan = plan_of(make_gpt(training, {0, 2}), {});
  const auto one = device_for(plan, {}), two = device_for(plan, {});
  std::vector<Device*> all{one.get(), two.get()};
  const auto communicators = make_local_communicators(all);
  on_ranks(2, [&](std::uint32_t rank) {
    WatchedCommunicator watched(*communicators[rank], *all[rank]);
    train(*all[rank], make_gpt(training, {rank, 2}), plan, {}, &watched);
    EXPECT_EQ(watched.registrations, 1);
    EXPECT_TRUE(watched.forgotten());
    watched.barrier();
  });
}

TEST(Ranks, RefuseACommunicatorThatDoesNotFitTheGraph) {
  const Training training;
  const Graph graph = make_gpt(training, {1, 2});
  const Plan plan = plan_of(graph, {});
  const auto device = device_for(plan, {});
  std::vector<Device*> all{device.get()};
  const auto communicators = make_local_communicators(all);
  for (Communicator* communicator : {static_cast<Communicator*>(nullptr), communicators[0].get()}) {
    EngineOptions options;
    options.communicator = communicator;
    EXPECT_THROW(Engine(*device, graph, plan, options), InvalidInput);
  }
}

TEST(Ranks, RefuseCollectivesThatAreNone) {
  const Graph whole = make_gpt({}, {0, 2});
  const Plan plan = plan_of(whole, {});
  const auto refuse = [&](const std::string& kernel, const auto& damage) {
    Graph graph = whole;
    const auto op = std::find_if(graph.ops.begin(), graph.ops.end(),
                                 [&](const Op& each) { return each.kernel == kernel; });
    damage(graph, *op);
    const auto one = device_for(plan, {}), two = device_for(plan, {});
    std::vector<Device*> all{one.get(), two.get()};
    const auto communicators = make_local_communicators(all);
    EngineOptions options;
    options.communicator = communicators[0].get();
    test::expect_refused([&] { Engine(*one, graph, plan, options); }, "'" + op->name + "' is no " + kernel);
  };
  refuse("gather", [](Graph&, Op& op) { op.reads.push_back(op.reads[0]); });
  refuse("gather", [](Graph& graph, Op& op) { graph.tensors[op.reads[0]].shape = {1}; });
  refuse("exchange", [](Graph&, Op& op) { op.writes.clear(); });
  refuse("exchange", [](Graph& graph, Op& op) { graph.tensors[op.writes[0]].shape = {3}; });
  refuse("exchange", [](Graph&, Op& op) { op.phase = Phase::update; });
}

// The others learn who it was, and all are at a step boundary.
// Ranks with different plans would take one another's bytes for other tensors'.
TEST(Ranks, RefuseAnotherPlanThanThatOfRank0) {
  const Training training;
  const Plan plan = plan_of(make_gpt(training, {0, 2}), {});
  using Change = std::function<void(Plan&, EngineOptions&)>;
  const std::vector<Change> changes{[](Plan& other, EngineOptions&) { other.policy = "none"; },
                                    [](Plan&, EngineOptions& options) { options.seed += 1; },
                                    [](Plan&, EngineOptions& options) { options.first_step = 3; }};
  for (std::size_t change = 0; change < changes.size(); ++change) {
    SCOPED_TRACE(change);
    const auto one = device_for(plan, {}), two = device_for(plan, {});
    std::vector<Device*> all{one.get(), two.get()};
    const auto communicators = make_local_communicators(all);
    on_ranks(2, [&](std::uint32_t rank) {
      Plan own = plan;
      EngineOptions options;
      options.communicator = communicators[rank].get();
      if (rank == 1) changes[change](own, options);
      test::expect_refused(
          [&] {
            Engine(*all[rank], make_gpt(training, {rank, 2}), own, options);
          },
          "rank 1 has another plan");
    });
  }
}

TEST(Ranks, AFailureOfOneEndsTheStepOnAll) {
  const Training training;
  const Plan plan = plan_of(make_gpt(training, {0, 2}), {});
  for (const std::uint64_t call : {10U, 60U, 200U}) {
    SCOPED_TRACE(call);
    std::vector<std::unique_ptr<SimulatedDevice>> devices;
    std::vector<Device*> all;
    for (int rank = 0; rank < 2; ++rank) {
      devices.push_back(device_for(plan, {.executor = Executor::threaded}));
      all.push_back(devices.back().get());
    }
    const auto communicators = make_local_communicators(all);
    on_ranks(2, [&](std::uint32_t rank) {
      const Graph graph = make_gpt(training, {rank, 2});
      EngineOptions options;
      options.communicator = communicators[rank].get();
      Engine engine(*devices[rank], graph, plan, options);
      StepInputs inputs(graph, 2);
      make_step(engine, inputs);
      engine.drain();
      communicators[rank]->barrier();
      if (rank == 1) devices[1]->set_fault({.index = call, .kind = Fault::Kind::call});
      try {
        make_step(engine, inputs);
        ADD_FAILURE() << "rank " << rank << " made the step";
      } catch (const CommunicatorError& error) {
        EXPECT_EQ(rank, 0U) << error.what();
        EXPECT_EQ(error.failed_rank(), 1) << error.what();
      } catch (const StepError& error) {
        EXPECT_EQ(rank, 1U) << error.what();
        EXPECT_FALSE(error.step_counted());
      }
      EXPECT_EQ(engine.completed_steps(), 1U);
      devices[rank]->clear_fault();
    });
  }
}

}  // namespace
}  // namespace stowage
