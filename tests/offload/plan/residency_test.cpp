#include "offload/plan/residency.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

Problem chain_problem(const Graph& graph, const Machine& machine) {
  return make_problem(graph, machine, {.target_bytes = 0});
}

Sketch timed(const Problem& problem, const Choices& choices) {
  const Sketcher sketcher(problem, choices);
  Sketch sketch = sketcher.within(sketcher.serial_bytes() + sketcher.serial_bytes() / 4);
  time_sketch(problem, sketch, 0);
  return sketch;
}

int levels(const Choices& choices, const Problem& problem) {
  int sum = 0;
  for (const ActivationItem& item : problem.items) sum += static_cast<int>(choice_of(item, choices));
  for (LoadChoice choice : choices.loads) sum += static_cast<int>(choice);
  return sum;
}

bool same_end(const Choices& a, const Choices& b, const Problem& problem) {
  for (const ActivationItem& item : problem.items)
    if (choice_of(item, a) != choice_of(item, b)) return false;
  for (BucketId id = 0; id < a.loads.size(); ++id)
    if (highest_level(problem, false, id) > 0 && a.loads[id] != b.loads[id]) return false;
  return true;
}

using Path = std::vector<Choices> (*)(const Problem&);
class EachPath : public ::testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Residency, EachPath, ::testing::Values(simulated_path, estimated_path),
                         [](const auto& info) { return info.index == 0 ? "Simulated" : "Estimated"; });

TEST_P(EachPath, ClimbsFromTheLeastToAllOnTheDevice) {
  Graph graph =
      testing::chain_graph({.units = 3, .activation_elements = 1 << 16, .parameter_elements = 1 << 16});
  Machine machine;
  Problem problem = chain_problem(graph, machine);
  std::vector<Choices> path = GetParam()(problem);
  EXPECT_EQ(path.front(), lowest_choices(problem));
  for (std::size_t i = 1; i < path.size(); ++i)
    EXPECT_GT(levels(path[i], problem), levels(path[i - 1], problem));
  EXPECT_TRUE(same_end(path.back(), resident_choices(problem), problem));
}

TEST_P(EachPath, TheEndIsFasterThanTheStartAndMovesLess) {
  Graph graph =
      testing::chain_graph({.units = 4, .activation_elements = 1 << 16, .parameter_elements = 1 << 16});
  Machine machine;
  machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = 1e9;
  Problem problem = chain_problem(graph, machine);
  std::vector<Choices> path = GetParam()(problem);
  const Sketch first = timed(problem, path.front());
  const Sketch last = timed(problem, path.back());
  EXPECT_LT(last.step_seconds, first.step_seconds);
  EXPECT_LT(last.link_bytes, first.link_bytes);
  EXPECT_GT(last.live_peak_bytes, first.live_peak_bytes);
}

// Where only the link matters bytes over it are saved first, where only arithmetic does a replay.
TEST_P(EachPath, WhatBuysMostTimePerByteIsPromotedFirst) {
  Graph graph = testing::chain_graph(
      {.units = 3, .activation_elements = 1 << 14, .parameter_elements = 1 << 18, .op_flops = 1e3});
  Machine machine;
  machine.h2d.bytes_per_second = 1e8;
  machine.d2h.bytes_per_second = 1e12;
  Problem by_link = chain_problem(graph, machine);
  std::vector<Choices> path = GetParam()(by_link);
  EXPECT_LT(timed(by_link, path[1]).link_bytes, timed(by_link, path[0]).link_bytes);

  machine.h2d.bytes_per_second = 1e12;
  machine.flops_per_second = 1e6;
  Problem by_compute = chain_problem(graph, machine);
  path = GetParam()(by_compute);
  EXPECT_LT(timed(by_compute, path[1]).compute_seconds, timed(by_compute, path[0]).compute_seconds);
}

// Blocks that are alike (all but the first, which has no gradient to hand on) are promoted an eighth of them
// at a time: the last activations first, and the first parameters where they become resident.
TEST(EstimatedPath, TakesAnEighthOfWhatIsAlike) {
  Graph graph =
      testing::chain_graph({.units = 17, .activation_elements = 1 << 14, .parameter_elements = 1 << 14});
  Machine machine;
  Problem problem = chain_problem(graph, machine);
  std::vector<Choices> path = estimated_path(problem);
  std::vector<std::uint32_t> kept, resident;  // units of what is promoted for the first time
  for (std::size_t i = 1; i < path.size(); ++i) {
    for (const ActivationItem& item : problem.items) {
      const bool now = choice_of(item, path[i]) != ActivationChoice::recompute;
      if (item.rebuildable && item.unit > 1 && now &&
          choice_of(item, path[i - 1]) == ActivationChoice::recompute)
        kept.push_back(item.unit);
    }
    for (std::size_t k = 1; k < problem.layout.parameters.size(); ++k) {
      const BucketId id = problem.layout.parameters[k];
      if (path[i].loads[id] == LoadChoice::resident && path[i - 1].loads[id] != LoadChoice::resident)
        resident.push_back(static_cast<std::uint32_t>(k));
    }
  }
  ASSERT_EQ(kept.size(), 16U);
  ASSERT_EQ(resident.size(), 16U);
  EXPECT_GT(*std::min_element(kept.begin(), kept.begin() + 2),
            *std::max_element(kept.begin() + 2, kept.end()));
  EXPECT_TRUE(std::is_sorted(resident.begin(), resident.end()));
  EXPECT_LT(path.size(), 16U * 5);
}

// Of the choice with least memory: more stays or is rebuilt instead of crossing, in no more bytes.
TEST(Relaxed, TakesNoMoreThanTheLimitAndUsesWhatThereIs) {
  Graph graph =
      testing::chain_graph({.units = 9, .activation_elements = 1 << 14, .parameter_elements = 1 << 12});
  Machine machine;
  machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = 1e8;
  Problem problem = chain_problem(graph, machine);
  Choices start = lowest_choices(problem);
  for (const ActivationItem& item : problem.items)
    choose(item, item.rebuildable ? ActivationChoice::offload : ActivationChoice::reload, start);
  const Bytes least = Sketcher(problem, start).serial_bytes();
  const Choices same_bytes = PathEstimator(problem).relaxed(start, least);
  EXPECT_LE(Sketcher(problem, same_bytes).serial_bytes(), least);
  const Choices with_room = PathEstimator(problem).relaxed(start, 8 * least);
  EXPECT_LE(Sketcher(problem, with_room).serial_bytes(), 8 * least);
  EXPECT_GT(levels(with_room, problem), levels(same_bytes, problem));
  EXPECT_LE(timed(problem, same_bytes).step_seconds, timed(problem, start).step_seconds * (1 + 1e-9));
  EXPECT_LT(timed(problem, with_room).step_seconds, 0.9 * timed(problem, start).step_seconds);
  EXPECT_EQ(PathEstimator(problem).relaxed(start, 0), start);
}

}  // namespace
}  // namespace stowage
