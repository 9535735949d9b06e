#include "offload/plan/residency.h"

#include <gtest/gtest.h>

#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

Problem chain_problem(const Graph& graph, const Machine& machine) {
  return make_problem(graph, machine, {.target_bytes = 0, .optimizer_on_host = true});
}

int levels(const Choices& choices, const Problem& problem) {
  int sum = 0;
  for (ActivationChoice choice : choices.units) sum += static_cast<int>(choice);
  for (BucketId id = 0; id < choices.loads.size(); ++id)
    if (problem.layout.roles[id] == BucketRole::parameter || problem.layout.roles[id] == BucketRole::input)
      sum += static_cast<int>(choices.loads[id]);
  return sum;
}

TEST(Residency, ThePathClimbsOneLevelAtATimeFromTheLeastToTheMost) {
  Graph graph =
      testing::chain_graph({.units = 3, .activation_elements = 1 << 16, .parameter_elements = 1 << 16});
  Machine machine;
  Problem problem = chain_problem(graph, machine);
  std::vector<Choices> path = promotion_path(problem);
  EXPECT_EQ(path.front(), minimum_choices(problem));
  for (std::size_t i = 1; i < path.size(); ++i)
    EXPECT_EQ(levels(path[i], problem), levels(path[i - 1], problem) + 1);
  for (ActivationChoice choice : path.back().units) EXPECT_EQ(choice, ActivationChoice::keep);
  // Units: embed, 3, head; loads: 3 parameters and the tokens. Two levels each.
  EXPECT_EQ(path.size(), 1U + 2 * 5 + 2 * 4);
}

// The link is so slow that only it matters, and only W1 is large: it goes first.
TEST(Residency, WhatBuysMostTimePerByteIsPromotedFirst) {
  Graph graph = testing::chain_graph(
      {.units = 3, .activation_elements = 1 << 14, .parameter_elements = 1 << 18, .op_flops = 1e3});
  Machine machine;
  machine.h2d.bytes_per_second = 1e8;
  machine.d2h.bytes_per_second = 1e12;
  Problem problem = chain_problem(graph, machine);
  std::vector<Choices> path = promotion_path(problem);
  bool load_moved = false;
  for (BucketId id : problem.layout.parameters) load_moved |= path[1].loads[id] != path[0].loads[id];
  EXPECT_TRUE(load_moved);

  machine.h2d.bytes_per_second = 1e12;
  machine.flops_per_second = 1e6;  // now only arithmetic matters: recomputation goes first
  Problem slow = chain_problem(graph, machine);
  bool unit_kept = false;
  std::vector<Choices> by_compute = promotion_path(slow);
  for (std::size_t unit = 0; unit < slow.analysis.units.size(); ++unit)
    unit_kept |= by_compute[2].units[unit] == ActivationChoice::keep ||
                 by_compute[1].units[unit] != by_compute[0].units[unit];
  EXPECT_TRUE(unit_kept);
}

TEST(Residency, AlongThePathTheEndIsNotSlowerThanTheStart) {
  Graph graph =
      testing::chain_graph({.units = 4, .activation_elements = 1 << 16, .parameter_elements = 1 << 16});
  Machine machine;
  machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = 1e9;
  Problem problem = chain_problem(graph, machine);
  std::vector<Choices> path = promotion_path(problem);
  Sketch first = make_sketch(problem, path.front(), 2);
  Sketch last = make_sketch(problem, path.back(), 2);
  EXPECT_LT(last.step_seconds, first.step_seconds);
  EXPECT_LT(last.link_bytes, first.link_bytes);
  EXPECT_GT(last.live_peak_bytes, first.live_peak_bytes);
}

}  // namespace
}  // namespace stowage
