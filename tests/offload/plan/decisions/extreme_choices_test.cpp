#include "offload/plan/decisions/extreme_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/chain_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using enum ActivationChoice;

Bytes least_serial_bytes(const Problem& problem) {
  Bytes least = unlimited;
  for (const Choices& choices : minimum_candidates(problem))
    least = std::min(least, Sketcher(problem, choices).serial_bytes());
  return least;
}

// Against choices drawn item by item.
TEST(MinimumCandidates, NoRandomChoicesTakeMuchFewerBytes) {
  std::mt19937 random(3);
  double worst = 1;
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(60, 10); ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed);
    const Machine machine;
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    const Bytes least = least_serial_bytes(problem);
    for (int round = 0; round < 40; ++round) {
      Choices choices = lowest_choices(problem);
      for (const ActivationItem& item : problem.items) {
        const ActivationChoice levels[] = {reload, item.rebuildable ? recompute : spill, spill, offload,
                                           keep};
        choose(item, levels[random() % 5], choices);
      }
      worst = std::min(
          worst, static_cast<double>(Sketcher(problem, choices).serial_bytes()) / static_cast<double>(least));
    }
  }
  EXPECT_GT(worst, 0.95);
}

// A chain of two units, of whose ops one writes a workspace that is larger than all else.
Graph with_work(const char* writer) {
  Graph graph = testing::chain_graph({.units = 2, .activation_elements = 1024, .parameter_elements = 64});
  const TensorId work = static_cast<TensorId>(graph.tensors.size());
  graph.tensors.push_back({"work", DataType::f32, {1 << 14}, TensorKind::activation, {}});
  graph.ops[testing::find_op(graph, writer)].writes.push_back(work);
  return graph;
}

// To make h1 anew takes more bytes at one time than anything else does: it goes to the host instead. While a1
// runs a second time, dx2 waits beside its workspace; the first time nothing does.
TEST(MinimumCandidates, DoWithoutAReplayThatNeedsMoreThanTheRest) {
  const Machine machine;
  const Graph graph = with_work("a1");
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const Bytes lowest = Sketcher(problem, lowest_choices(problem)).serial_bytes();
  EXPECT_EQ(lowest - least_serial_bytes(problem), 4096U) << "dx2";
}

// x1 would lie idle beside the workspace, from h1's replay to the next op that reads it: it comes twice.
TEST(MinimumCandidates, BringAValueBackForEachOpWhereMostIsNeeded) {
  const Machine machine;
  const Graph graph = with_work("b.backward1");
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const BucketId h1 = problem.layout.bucket_of[testing::find_tensor(graph, "h1")];
  const BucketId x1 = problem.layout.bucket_of[testing::find_tensor(graph, "x1")];
  const std::vector<Choices> all = minimum_candidates(problem);
  const Bytes least = least_serial_bytes(problem);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Choices& choices) {
    return choices.activations[h1] == recompute && choices.activations[x1] == reload &&
           Sketcher(problem, choices).serial_bytes() == least;
  }));
}

}  // namespace
}  // namespace stowage
