// Devices that train one model together, in one process: losses, norms and every byte of parameters and state
// are those of one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/rank_training.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/expect_refused.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;

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

RankResult train(Device& device, const Graph& graph, const Plan& plan, const Way& way,
                 Communicator* communicator) {
  return train_rank(device, graph, plan, random_machine(way.machine), communicator);
}

RankResult train_alone(const MakeGraph& make, const RankTraining& training, const Way& way) {
  const Graph graph = make(training, {});
  const Plan plan = plan_of(graph, way);
  const auto device = device_for(plan, way);
  return train(*device, graph, plan, way, nullptr);
}

std::vector<RankResult> train_together(const MakeGraph& make, const RankTraining& training,
                                       std::uint32_t ranks, const Way& way) {
  const Plan plan = plan_of(make(training, {0, ranks}), way);
  std::vector<std::unique_ptr<SimulatedDevice>> devices;
  std::vector<Device*> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    devices.push_back(device_for(plan, way));
    all.push_back(devices.back().get());
  }
  const auto communicators = make_local_communicators(all);
  std::vector<RankResult> results(ranks);
  on_ranks(ranks, [&](std::uint32_t rank) {
    results[rank] =
        train(*devices[rank], make(training, {rank, ranks}), plan, way, communicators[rank].get());
    communicators[rank]->barrier();
  });
  return results;
}

void expect_the_bits_of(const RankResult& alone, const MakeGraph& make, const RankTraining& training,
                        std::uint32_t ranks, const Way& way) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << way.part_of_range << " of the range");
  const std::vector<RankResult> results = train_together(make, training, ranks, way);
  for (const RankResult& result : results) {
    EXPECT_EQ(result.losses, alone.losses);
    EXPECT_EQ(result.norms, alone.norms);
  }
  EXPECT_EQ(joined(results, alone).values, alone.values);
}

RankResult one_device(const MakeGraph& make, const RankTraining& training) {
  RankResult alone = train_alone(make, training, {});
  EXPECT_THAT(alone.clipped, ::testing::Contains(1U));
  EXPECT_THAT(alone.clipped, ::testing::Contains(0U));
  return alone;
}

void expect_the_bits_of_one_device(const MakeGraph& make) {
  const RankResult alone = one_device(make, {});
  if (!sanitized) expect_the_bits_of(alone, make, {}, 2, {});
  expect_the_bits_of(alone, make, {}, 2, {.part_of_range = 1, .executor = Executor::threaded, .machine = 3});
  expect_the_bits_of(alone, make, {}, 4, {.part_of_range = 0.4, .bucket_bytes = 1_KiB, .machine = 2});
}

TEST(Ranks, OfAGptLeaveTheBitsOfOneDevice) { expect_the_bits_of_one_device(rank_gpt); }
TEST(Ranks, OfABertLeaveTheBitsOfOneDevice) { expect_the_bits_of_one_device(rank_bert); }

TEST(Ranks, OfNarrowTypesAndMomentsLeaveTheBitsOfOneDevice) {
  for (const RankTraining& training :
       {RankTraining{.type = DataType::bf16, .micro_batches = 8}, RankTraining{.type = DataType::f16},
        RankTraining{.type = DataType::bf16, .moments = Moments::bf16},
        RankTraining{.moments = Moments::eight_bit}})
    if (!sanitized || training.type == DataType::f16)
      expect_the_bits_of(one_device(rank_gpt, training), rank_gpt, training, 4, {});
}

TEST(Ranks, OfADeepModelLeaveTheBitsOfOneDevice) {
  const Graph graph = rank_deep_gpt({}, {0, 2});
  const auto parts = std::count_if(graph.ops.begin(), graph.ops.end(),
                                   [](const Op& op) { return op.kernel == "norm_part"; });
  EXPECT_EQ(parts, 2);
  const Way all_on_the_device{.unlimited = true};
  expect_the_bits_of(train_alone(rank_deep_gpt, {}, all_on_the_device), rank_deep_gpt, {}, 2,
                     all_on_the_device);
}

// All that collectives touch is the arena, which the communicator knows for as long as the engine has it.
TEST(Ranks, RegisterTheArenaOnceAndForgetItBeforeItIsGivenUp) {
  const RankTraining training;
  const Plan plan = plan_of(rank_gpt(training, {0, 2}), {});
  const auto one = device_for(plan, {}), two = device_for(plan, {});
  std::vector<Device*> all{one.get(), two.get()};
  const auto communicators = make_local_communicators(all);
  on_ranks(2, [&](std::uint32_t rank) {
    WatchedCommunicator watched(*communicators[rank], *all[rank]);
    train(*all[rank], rank_gpt(training, {rank, 2}), plan, {}, &watched);
    EXPECT_EQ(watched.registrations, 1);
    EXPECT_TRUE(watched.forgotten());
    watched.barrier();
  });
}

TEST(Ranks, RefuseACommunicatorThatDoesNotFitTheGraph) {
  const RankTraining training;
  const Graph graph = rank_gpt(training, {1, 2});
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
  const Graph whole = rank_gpt({}, {0, 2});
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
  const RankTraining training;
  const Plan plan = plan_of(rank_gpt(training, {0, 2}), {});
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
            Engine(*all[rank], rank_gpt(training, {rank, 2}), own, options);
          },
          "rank 1 has another plan");
    });
  }
}

TEST(Ranks, AFailureOfOneEndsTheStepOnAll) {
  const RankTraining training;
  const Plan plan = plan_of(rank_gpt(training, {0, 2}), {});
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
      const Graph graph = rank_gpt(training, {rank, 2});
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
