// Plans of one rank of several: valid in any memory, and the same for all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "offload/plan/bound/program.h"
#include "offload/plan/problem/settings.h"
#include "src/graph/cost.h"
#include "stowage/launch_table.h"
#include "stowage/models.h"
#include "stowage/nn.h"
#include "stowage/planner.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Graph rank_graph(std::int64_t rank, std::int64_t ranks, std::int64_t micro_batches) {
  GraphBuilder builder(DataType::bf16);
  ModelConfig config{.layers = 3, .width = 64, .heads = 2, .vocabulary = 160, .sequence = 16, .batch = 8};
  config.micro_batches = micro_batches;
  config.gradient_groups = std::min<std::int64_t>(micro_batches, 4);
  config.rank = rank;
  config.ranks = ranks;
  config.dropout = 0.1;
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

Machine with_peers(std::uint64_t seed) {
  Machine machine = testing::any_machine(seed);
  machine.peer = {.bytes_per_second = 2 * machine.h2d.bytes_per_second, .latency_seconds = 1e-5};
  return machine;
}

TEST(RankPlans, PlanIntoValidPlansInAnyMemory) {
  for (const std::int64_t ranks : {2, 4})
    for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(8, 2); ++seed) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, machine " << seed);
      const Graph graph = rank_graph(0, ranks, seed % 2 == 0 ? 4 : 8);
      const Machine machine = with_peers(seed);
      const Bytes least = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
      for (const Bytes budget : {least, testing::random_budget(seed, least, need), need}) {
        const auto planned = make_plan(graph, machine, {budget, unlimited});
        ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << budget;
        const Plan& plan = std::get<Plan>(planned);
        EXPECT_THAT(validate(graph, plan, {budget, unlimited}), IsEmpty()) << budget;
        EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9)) << budget;
      }
    }
}

// Taking any wait out breaks the plan, since waits that lane order, other waits or the gate imply
// are left out.
TEST(RankPlans, HaveNoWaitThatIsNotNeeded) {
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(6, 2); ++seed) {
    const std::int64_t ranks = seed % 2 == 0 ? 2 : 4;
    const Graph graph = rank_graph(1, ranks, ranks);
    const Machine machine = with_peers(seed);
    const Bytes least = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
    const Budget budget{testing::random_budget(seed, least, need), unlimited};
    const Plan plan = std::get<Plan>(make_plan(graph, machine, budget));
    ASSERT_THAT(validate(graph, plan, budget), IsEmpty());
    int between_device_lanes = 0;
    for (InstructionId id = 0; id < plan.instructions.size(); ++id)
      for (std::size_t i = 0; i < plan.instructions[id].waits.size(); ++i) {
        Plan changed = plan;
        std::vector<Wait>& waits = changed.instructions[id].waits;
        const Instruction& on = plan.instructions[waits[i].instruction];
        between_device_lanes += runs_on_device(plan.instructions[id]) && runs_on_device(on);
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(validate(graph, changed, budget).empty())
            << "seed " << seed << ": instruction " << id << " need not wait for "
            << plan.instructions[id].waits[i].instruction;
      }
    EXPECT_GT(between_device_lanes, 0) << "seed " << seed;
  }
}

TEST(RankPlans, ExchangeOnThePeerLaneAlone) {
  const Graph graph = rank_graph(0, 2, 2);
  const Machine machine = with_peers(1);
  const Budget budget{need_bytes(graph, machine), unlimited};
  Plan plan = std::get<Plan>(make_plan(graph, machine, budget));
  int collectives = 0;
  for (Instruction& instruction : plan.instructions) {
    if (instruction.op == no_id || !is_collective(graph.op(instruction.op))) continue;
    ++collectives;
    ASSERT_EQ(instruction.lane, LaneRole::peer);
    instruction.lane = LaneRole::compute;
    EXPECT_THAT(validate(graph, plan, budget), Contains(HasSubstr("is not on the peer lane")));
    instruction.lane = LaneRole::peer;
  }
  EXPECT_GT(collectives, 10);
}

// If the peers are as fast as this rank, the compute lane hardly waits for them.
TEST(RankPlans, GatherAndExchangeBesideTheComputeLane) {
  const Graph graph = rank_graph(0, 2, 2);
  Machine machine;
  machine.flops_per_second = 1e9;
  machine.peer = {.bytes_per_second = 1e9, .latency_seconds = 1e-6};
  const Budget budget{need_bytes(graph, machine), unlimited};
  const Plan plan = std::get<Plan>(make_plan(graph, machine, budget));
  const Timeline timeline = simulate(graph, plan, machine);
  double beside = 0, exchanging = 0;
  for (InstructionId a = 0; a < plan.instructions.size(); ++a) {
    if (plan.instructions[a].lane != LaneRole::peer) continue;
    const Interval& peer = timeline.instructions[a];
    exchanging += peer.end - peer.begin;
    for (InstructionId b = 0; b < plan.instructions.size(); ++b) {
      if (plan.instructions[b].lane != LaneRole::compute) continue;
      const Interval& op = timeline.instructions[b];
      beside += std::max(0.0, std::min(op.end, peer.end) - std::max(op.begin, peer.begin));
    }
  }
  EXPECT_GT(exchanging, 0.01 * timeline.step_seconds);
  EXPECT_GT(beside, 0.8 * exchanging);
}

double peer_seconds_of(const Graph& graph, const Machine& machine) {
  double seconds = 0;
  for (const Op& op : graph.ops)
    if (op.phase != Phase::update && op.cost.peer_bytes > 0)
      seconds += machine.peer.latency_seconds + op.cost.peer_bytes / machine.peer.bytes_per_second;
  return seconds;
}

// If the peers are slow, nothing else counts: each op that exchanges runs at least once, one after another.
TEST(RankPlans, TakeNoLessThanTheirBoundHoweverSlowThePeersAre) {
  for (const std::int64_t ranks : {2, 4})
    for (const double slower : {1.0, 30.0, 1000.0})
      for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(6, 1); ++seed) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << slower << ", machine " << seed);
        const Graph graph = rank_graph(0, ranks, seed % 2 == 0 ? ranks : 2 * ranks);
        Machine machine = with_peers(seed);
        machine.peer.bytes_per_second /= slower;
        machine.peer.latency_seconds *= slower;
        const Bytes least = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
        for (const Bytes budget : {least, testing::random_budget(seed + 100, least, need), need}) {
          const auto planned = make_plan(graph, machine, {budget, unlimited});
          ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << budget;
          const Plan& plan = std::get<Plan>(planned);
          EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9)) << budget;
          EXPECT_GE(plan.lower_bound_seconds, peer_seconds_of(graph, machine) * (1 - 1e-9)) << budget;
        }
      }
}

TEST(RankPlans, HaveOnePlan) {
  const Machine machine = with_peers(1);
  const Graph first = rank_graph(0, 4, 4);
  const Bytes least = minimum_bytes(first, machine);
  const auto plan_of = [&](const Graph& graph) {
    return std::get<Plan>(make_plan(graph, machine, {least + least / 4, unlimited}));
  };
  const Plan plan = plan_of(first);
  for (const std::int64_t rank : {1, 3}) EXPECT_EQ(plan_of(rank_graph(rank, 4, 4)), plan);
}

// Returns the graph of one of four ranks that train a GPT.
Graph four_ranks_gpt(std::int64_t layers) {
  GraphBuilder builder(DataType::bf16);
  ModelConfig config{
      .layers = layers, .width = 4096, .heads = 32, .vocabulary = 50304, .sequence = 2048, .batch = 32};
  config.micro_batches = config.gradient_groups = config.ranks = 4;
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

// Cards that reach each other through host memory.
Machine cards_without_links() {
  Machine machine;
  machine.h2d = machine.d2h = {.bytes_per_second = 25e9, .latency_seconds = 1e-5};
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = 22e9;
  machine.peer = {.bytes_per_second = 15e9, .latency_seconds = 4e-5};
  machine.peer_path = PeerPath::host_memory;
  machine.host_bytes_per_second = machine.host_total_bytes_per_second = 30e9;
  machine.flops_per_second = 115e12;
  machine.device_bytes_per_second = 850e9;
  return machine;
}

// Four cards that reach each other through host memory: the fastest plan in the least device memory takes a
// third of the host memory that the programs' mixtures take.
TEST(RankPlans, TheLeastDeviceMemoryIsNotSlowerWithMoreHostMemory) {
  if (testing::sanitized) GTEST_SKIP() << "seconds of planning";
  const Graph graph = four_ranks_gpt(24);
  const Machine machine = cards_without_links();
  const Bytes least = minimum_bytes(graph, machine);
  const auto seconds = [&](Bytes device, Bytes host) {
    return std::get<Plan>(make_plan(graph, machine, {device, host})).predicted_step_seconds;
  };
  const double at_least = seconds(least, unlimited);
  EXPECT_LE(at_least, seconds(least, Bytes{30} << 30U) * 1.005);
  EXPECT_LE(seconds(least + least * 33 / 1000, unlimited), at_least * 1.005) << "with more device memory";
}

// Host memory that no mixture fits into is looked at, however much work the roundings of mixtures have taken.
TEST(RankPlans, TheLeastDeviceMemoryIsNotSlowerWithMoreHostMemoryAfterMuchWork) {
  if (testing::sanitized) GTEST_SKIP() << "seconds of planning";
  const Graph graph = four_ranks_gpt(8);
  const Machine machine = cards_without_links();
  const Bytes least = minimum_bytes(graph, machine);
  Planner planner(graph, machine,
                  {.settings = std::make_shared<PlannerSettings>(PlannerSettings{.most_work = 1000})});
  const auto seconds = [&](Bytes host) {
    return std::get<Plan>(planner.answer({.device = least, .host = host}).outcome).predicted_step_seconds;
  };
  const double freely = seconds(unlimited);  // asked first: a planner remembers
  EXPECT_LE(freely, seconds(10_GiB) * 1.005);
}

// Each rank has its share of the optimizer state on the host: with two ranks a little more than half at most.
TEST(RankPlans, NeedLessHostMemoryEach) {
  const auto host_bytes = [](std::int64_t ranks) {
    const Graph graph = rank_graph(0, ranks, 4);
    const auto planned = make_plan(graph, with_peers(1), {minimum_bytes(graph, with_peers(1)), unlimited});
    const Plan& plan = std::get<Plan>(planned);
    Bytes bytes = 0;
    for (const Bucket& bucket : plan.buckets)
      if (bucket.on_host() && bucket.kind == TensorKind::optimizer_state) bytes += bucket.bytes;
    return bytes;
  };
  const Bytes alone = host_bytes(1);
  EXPECT_GT(alone, 0U);
  EXPECT_LT(host_bytes(2), alone * 6 / 10);
  EXPECT_LT(host_bytes(4), alone * 35 / 100);
}

// In these graphs, ops that use gathered and exchanged values stand anywhere about the turn.
TEST(RankPlans, TakeNoLessThanTheirBoundWhateverTheGraph) {
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(60, 15); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const std::uint32_t ranks = seed % 2 == 0 ? 2 : 4;
    const Graph graph = testing::random_graph(
        seed, {.max_units = 3, .micro_batches = seed % 3 == 0 ? 2U : 1U, .share = {0, ranks}});
    const Machine machine = testing::machine_with_peers(seed);
    const Bytes least = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
    for (const Bytes budget : {least, testing::random_budget(seed, least, need), need, unlimited}) {
      const Plan plan = std::get<Plan>(make_plan(graph, machine, {budget, unlimited}));
      EXPECT_THAT(validate(graph, plan, {budget, unlimited}), IsEmpty()) << budget;
      EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9)) << budget;
      EXPECT_GE(plan.lower_bound_seconds, peer_seconds_of(graph, machine) * (1 - 1e-9)) << budget;
    }
  }
}

// The unit in which forward turns into backward has two large products. In program order one of their
// gathers, or of their exchanges, is on the wrong side of the turn.
Graph turning_at_large_products() {
  constexpr std::int64_t width = 128, words = 16;
  GraphBuilder builder;
  builder.split_batch(1, 1, {0, 2});
  const Value tokens = builder.input("tokens", {8}), targets = builder.input("targets", {8});
  const auto weight = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return builder.parameter(name, {rows, columns}, {0, 0.1});
  };
  const auto product = [&](const char* name, Value x) {
    return nn::linear(builder, name, x, weight((std::string(name) + ".weight").c_str(), width, width), {});
  };
  builder.begin_unit("embedding");
  Value x = nn::embedding(builder, "embedding", tokens, weight("table", words, width), {}, 4);
  builder.begin_unit("head");
  x = product("second", product("first", x));
  Value logits = nn::linear(builder, "logits", x, weight("words", width, words), {});
  return builder.finish(builder.sum_loss(nn::cross_entropy(builder, "loss", logits, targets)), AdamW{});
}

TEST(RankPlans, ABoundCountsWhatPeersBringWhereItIsNeededAlone) {
  const auto peer_seconds = [](const char* kernel, const ShareTimes ShareCost::*phase) {
    Graph graph = turning_at_large_products();
    for (Op& op : graph.ops) op.cost.seconds = op.kernel == kernel ? 1 : 0;
    const Machine machine;
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    const BoundProgram program = make_bound_program(problem, {}, BoundLinks::apart);
    return (program.shares.fixed.*phase)[share_peer] * program.seconds;
  };
  EXPECT_EQ(peer_seconds("exchange", &ShareCost::front), 0);
  EXPECT_GE(peer_seconds("exchange", &ShareCost::back), 3);
  EXPECT_GE(peer_seconds("gather", &ShareCost::front), 1);
  // Only seconds of the loss and the norm are left, since no weight is first needed in backward.
  EXPECT_LE(peer_seconds("gather", &ShareCost::back), 2);
}

// If each direction of the link is the peers' path and all else takes no time, it has as much to do in a
// phase as the peer lane has. An op of another lane that claims to bring bytes takes nothing of the link.
TEST(RankPlans, ABoundCountsPeersBytesOnTheLinkTheyPassThrough) {
  Graph graph = turning_at_large_products();
  struct Seconds {
    double peer = 0, h2d = 0;
  };
  const auto seconds = [&](PeerPath path, BoundLinks links) {
    Machine machine;
    machine.h2d = machine.d2h = machine.peer = {.bytes_per_second = 1e9, .latency_seconds = 0};
    machine.flops_per_second = machine.device_bytes_per_second = 1e30;
    machine.launch_seconds = 0;
    machine.peer_path = path;
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    const BoundProgram program = make_bound_program(problem, {}, links);
    const ShareCost& fixed = program.shares.fixed;
    EXPECT_EQ(fixed.front[share_h2d], fixed.front[share_d2h]);
    return Seconds{(fixed.front[share_peer] + fixed.back[share_peer]) * program.seconds,
                   (fixed.front[share_h2d] + fixed.back[share_h2d]) * program.seconds};
  };
  EXPECT_EQ(seconds(PeerPath::apart, BoundLinks::shared).h2d, 0);
  EXPECT_EQ(seconds(PeerPath::link, BoundLinks::apart).h2d, 0);
  const Seconds counted = seconds(PeerPath::link, BoundLinks::shared);
  EXPECT_GT(counted.peer, 1e-5);
  EXPECT_NEAR(counted.h2d, counted.peer, 1e-12);
  for (Op& op : graph.ops)
    if (op.kernel == "linear") op.cost.peer_bytes = 1e12;
  EXPECT_NEAR(seconds(PeerPath::link, BoundLinks::shared).h2d, counted.h2d, 1e-9);
}

}  // namespace
}  // namespace stowage
