#include "offload/plan/problem/byte_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/models.h"
#include "tests/support/draws.h"
#include "tests/support/graph_queries.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr MicroBatchOrder both_orders[] = {MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)};

Graph grouped_gpt(std::int64_t micro_batches, std::int64_t groups) {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, {.layers = 1,
                                         .width = 64,
                                         .heads = 2,
                                         .vocabulary = 96,
                                         .sequence = 8,
                                         .batch = 16,
                                         .micro_batches = micro_batches,
                                         .gradient_groups = groups,
                                         .head_tokens = 32});
  return builder.finish(model.loss, {});
}

TEST(PartialSums, OneGroupJoinsNothing) {
  const Graph graph = grouped_gpt(16, 1);
  for (const MicroBatchOrder order : both_orders) {
    const RecomputeAnalysis analysis = analyse_recompute(graph, order);
    EXPECT_EQ(byte_groups(graph, analysis), analysis.group);
  }
}

// The partial sums of a parameter's gradient that cross units: their alias groups, and the groups of bytes
// that hold them.
struct Counts {
  std::set<TensorId> groups, buckets;
};
Counts counts_of(const Graph& graph, MicroBatchOrder order, const std::string& parameter) {
  const RecomputeAnalysis analysis = analyse_recompute(graph, order);
  const std::vector<TensorId> bytes = byte_groups(graph, analysis);
  const TensorId final_group = analysis.group[graph.op(test::op_named(graph, parameter + ".adamw")).reads[1]];
  Counts counts;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const bool is_gradient = graph.tensor(id).kind == TensorKind::gradient &&
                             graph.tensor(id).name.starts_with(parameter + ".grad");
    if (!is_gradient || !analysis.boundary[analysis.group[id]] || analysis.group[id] == final_group) continue;
    counts.groups.insert(analysis.group[id]);
    counts.buckets.insert(bytes[id]);
  }
  return counts;
}

TEST(PartialSums, HaveABucketForEachLevelOfTheTree) {
  const Graph graph = grouped_gpt(16, 8);
  for (const MicroBatchOrder order : both_orders) {
    const Counts counts = counts_of(graph, order, "h.0.mlp.c_fc.weight");
    EXPECT_EQ(counts.groups.size(), 7U) << to_string(order);
    EXPECT_EQ(counts.buckets.size(), 3U) << to_string(order);
  }
  // If each gradient group is one micro-batch, every other sum is added at once.
  const Counts single = counts_of(grouped_gpt(8, 8), MicroBatchOrder::ahead(1), "h.0.mlp.c_fc.weight");
  EXPECT_EQ(single.groups.size(), 3U);
  EXPECT_EQ(single.buckets.size(), 2U);
}

// The head's sums are dead before the embedding's begin, unless each micro-batch goes through all units.
TEST(PartialSums, OfTheUsesOfATiedTableShareBucketsWhereTheyCan) {
  const Graph graph = grouped_gpt(16, 8);
  EXPECT_EQ(counts_of(graph, MicroBatchOrder::layer_major, "wte.weight").groups.size(), 15U);
  EXPECT_EQ(counts_of(graph, MicroBatchOrder::layer_major, "wte.weight").buckets.size(), 4U);
  EXPECT_EQ(counts_of(graph, MicroBatchOrder::ahead(1), "wte.weight").buckets.size(), 7U);
}

// Expects that partial sums which share bytes without an alias are used one after another, from the first op
// to the last that touches each.
void expect_turns(const Graph& graph, MicroBatchOrder order) {
  const RecomputeAnalysis analysis = analyse_recompute(graph, order);
  const std::vector<TensorId> bytes = byte_groups(graph, analysis);
  std::map<TensorId, std::pair<std::size_t, std::size_t>> needed;  // by alias group
  for (std::size_t place = 0; place < analysis.sequence.size(); ++place) {
    const Op& op = graph.op(analysis.sequence[place]);
    std::vector<TensorId> operands = op.reads;
    operands.insert(operands.end(), op.writes.begin(), op.writes.end());
    for (const TensorId id : operands)
      needed.try_emplace(analysis.group[id], place, place).first->second.second = place;
  }
  for (TensorId a = 0; a < graph.tensors.size(); ++a)
    for (TensorId b = 0; b < a; ++b) {
      if (analysis.group[a] == analysis.group[b]) {
        EXPECT_EQ(bytes[a], bytes[b]);
        continue;
      }
      if (bytes[a] != bytes[b]) continue;
      EXPECT_EQ(graph.tensor(a).shape, graph.tensor(b).shape);
      const auto [first_a, last_a] = needed[analysis.group[a]];
      const auto [first_b, last_b] = needed[analysis.group[b]];
      EXPECT_TRUE(last_a < first_b || last_b < first_a)
          << graph.tensor(a).name << ' ' << graph.tensor(b).name;
    }
}

TEST(PartialSums, NoTwoOfABucketAreNeededAtATime) {
  for (std::uint64_t seed = 0; seed < testing::draws(24U, 4U); ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph =
        testing::random_graph(seed, {.max_units = 3, .micro_batches = 8, .gradient_groups = 8});
    for (const MicroBatchOrder order : possible_orders(graph)) expect_turns(graph, order);
  }
}

// Returns the host bytes with everything on the host that can be there, except for the parts of the norm, of
// which there are as many as gradient groups.
Bytes least_host_bytes(const Graph& graph) {
  const Machine machine;
  const Problem problem = make_problem(graph, machine, {}, MicroBatchOrder::ahead(1));
  Choices choices = lowest_choices(problem);
  Bytes bytes = host_bytes(problem, Sketcher(problem, choices).serial().draft);
  for (BucketId bucket = 0; bucket < problem.layout.buckets.size(); ++bucket)
    if (problem.layout.roles[bucket] == BucketRole::square_sums)
      bytes -= problem.layout.buckets[bucket].bytes;
  return bytes;
}

TEST(PartialSums, TakeHostMemoryByTheDepthOfTheTree) {
  const Bytes plain = least_host_bytes(grouped_gpt(16, 1));
  const Bytes level = least_host_bytes(grouped_gpt(16, 2)) - plain;
  EXPECT_GT(level, 0U);
  EXPECT_EQ(least_host_bytes(grouped_gpt(16, 4)) - plain, 2 * level);
  EXPECT_EQ(least_host_bytes(grouped_gpt(16, 8)) - plain, 3 * level);
}

// Returns the problem with buckets for these groups of bytes.
Problem problem_of(const Graph& graph, const Machine& machine, const std::vector<TensorId>& groups) {
  Problem problem = make_problem(graph, machine, {}, MicroBatchOrder::ahead(1));
  problem.layout = make_buckets(graph, groups, {});
  problem.items = activation_items(graph, problem.analysis, problem.layout);
  problem.sizes.assign(problem.layout.buckets.size(), {});
  for (BucketId id = 0; id < problem.sizes.size(); ++id)
    problem.sizes[id].bytes = problem.layout.buckets[id].bytes;
  problem.undo_bytes.resize(problem.layout.buckets.size());
  return problem;
}

// A dead sum neither stays nor moves.
TEST(PartialSums, TakeNoMoreOfDeviceAndLinkThanInBucketsOfTheirOwn) {
  const Graph graph = grouped_gpt(16, 8);
  const Machine machine;
  const RecomputeAnalysis analysis = analyse_recompute(graph, MicroBatchOrder::ahead(1));
  struct Found {
    Bytes peak = 0;
    std::ptrdiff_t in = 0, out = 0;
    std::size_t lifetimes = 0;
    bool operator==(const Found&) const = default;
  };
  const auto found = [&](const std::vector<TensorId>& groups, ActivationChoice choice) {
    const Problem problem = problem_of(graph, machine, groups);
    Choices choices = lowest_choices(problem);
    for (const ActivationItem& item : problem.items) choose(item, choice, choices);
    const Sketch sketch = Sketcher(problem, choices).serial();
    const std::vector<DraftLifetime>& all = sketch.draft.lifetimes;
    return Found{sketch.live_peak_bytes,
                 std::count_if(all.begin(), all.end(), [](const auto& l) { return l.prefetched; }),
                 std::count_if(all.begin(), all.end(), [](const auto& l) { return l.offloaded; }),
                 all.size()};
  };
  for (const ActivationChoice choice : {ActivationChoice::spill, ActivationChoice::keep})
    EXPECT_TRUE(found(byte_groups(graph, analysis), choice) == found(analysis.group, choice));
}

// Puts two sums that are needed at the same time into one bucket.
TEST(PartialSums, ThatTakeOneAnothersBytesAreRejected) {
  const Graph graph = grouped_gpt(16, 8);
  const Machine machine;
  const auto violations = [&](const std::vector<TensorId>& groups) {
    const Problem problem = problem_of(graph, machine, groups);
    return validate(graph, complete(problem, Sketcher(problem, lowest_choices(problem)).serial().draft), {});
  };
  std::vector<TensorId> groups = byte_groups(graph, analyse_recompute(graph, MicroBatchOrder::ahead(1)));
  EXPECT_THAT(violations(groups), ::testing::IsEmpty());
  const std::set<TensorId> buckets =
      counts_of(graph, MicroBatchOrder::ahead(1), "h.0.mlp.c_fc.weight").buckets;
  std::replace(groups.begin(), groups.end(), *std::next(buckets.begin()), *buckets.begin());
  EXPECT_THAT(violations(groups), ::testing::Contains(::testing::HasSubstr("stands there instead")));
}

}  // namespace
}  // namespace stowage
