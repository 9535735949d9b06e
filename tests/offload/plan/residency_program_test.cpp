#include "offload/plan/residency_program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "offload/plan/extreme_choices.h"
#include "src/graph/cost.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using enum ActivationChoice;
using testing::chain_graph;
using testing::find_op;
using testing::find_tensor;

// Parameters small, activations large: what stays is a question of activations alone.
Graph chain_of_activations(int units) {
  return chain_graph(
      {.units = units, .activation_elements = 1 << 16, .parameter_elements = 64, .op_flops = 1e7});
}

struct Setting {
  explicit Setting(Graph of, Machine on = {}, PlannerSettings with = {})
      : graph(std::move(of)), machine(on), settings(with) {}
  Choices choices(Bytes device, Bytes host = unlimited) const {
    return program.round(program.solve(device, host));
  }
  ActivationChoice of(const char* tensor, const Choices& choices) const {
    return choices.activations[problem.layout.bucket_of[find_tensor(graph, tensor)]];
  }
  Bytes on_host(const Choices& choices) const {
    return host_bytes(problem, Sketcher(problem, choices).serial().draft);
  }
  Bytes serial_bytes(const Choices& choices) const { return Sketcher(problem, choices).serial_bytes(); }
  Bytes most() const { return serial_bytes(resident_choices(problem)); }
  Bytes least() const { return serial_bytes(lowest_choices(problem)); }

  Graph graph;
  Machine machine;
  PlannerSettings settings;
  Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  ResidencyProgram program{problem, settings};
};

Machine with_links(double bytes_per_second) {
  Machine machine;
  machine.h2d =
      machine.d2h = {.bytes_per_second = bytes_per_second, .latency_seconds = 1e-6, .throttled = true};
  return machine;
}

TEST(ResidencyProgram, WithAllTheMemoryEverythingStays) {
  const Setting setting(chain_graph({.units = 4}), with_links(1e6));
  for (const Bytes device : {2 * setting.most(), unlimited}) {
    const auto mixture = setting.program.solve(device, unlimited);
    EXPECT_TRUE(mixture.fits);
    const Choices choices = setting.program.round(mixture);
    EXPECT_EQ(setting.serial_bytes(choices), setting.most());
    EXPECT_EQ(setting.on_host(choices), setting.on_host(resident_choices(setting.problem)));
    for (BucketId id : setting.problem.layout.parameters) EXPECT_EQ(choices.loads[id], LoadChoice::resident);
    for (const ActivationItem& item : setting.problem.items)
      if (item.rebuildable) {
        EXPECT_EQ(choice_of(item, choices), keep);
      }
    double arithmetic = 0;
    for (const Op& op : setting.graph.ops)
      if (op.name != "clip") arithmetic += op_seconds(op, setting.machine);
    EXPECT_NEAR(mixture.seconds, arithmetic, 0.01 * arithmetic);
  }
}

// Both take as many bytes, but h1 takes a hundred times as long to make anew.
TEST(ResidencyProgram, WhatIsRebuiltFirstIsWhatCostsLeast) {
  Graph graph = chain_of_activations(2);
  graph.ops[find_op(graph, "a1")].cost.flops *= 100;
  const Setting setting(std::move(graph), with_links(1e6));
  Choices choices = resident_choices(setting.problem);
  for (Bytes device = setting.most(); setting.of("h0", choices) == keep; device -= 4096) {
    EXPECT_EQ(setting.of("h1", choices), keep) << device;
    choices = setting.choices(device);
  }
  EXPECT_EQ(setting.of("h0", choices), recompute);
  EXPECT_EQ(setting.of("h1", choices), keep);
}

// Either the link or the arithmetic is what costs nothing.
TEST(ResidencyProgram, WhatLeavesGoesTheWayThatCostsLess) {
  Machine machine = with_links(1e6);
  const auto count = [](const Setting& setting, ActivationChoice choice) {
    const Choices choices = setting.choices((setting.most() + setting.least()) / 2);
    return std::count_if(setting.problem.items.begin(), setting.problem.items.end(), [&](const auto& item) {
      return item.rebuildable && choice_of(item, choices) == choice;
    });
  };
  const Setting slow_link(chain_of_activations(6), machine);
  EXPECT_GT(count(slow_link, recompute), 0);
  EXPECT_EQ(count(slow_link, offload), 0);
  machine = with_links(1e12);
  machine.flops_per_second = 1e6;
  const Setting slow_device(chain_of_activations(6), machine);
  EXPECT_EQ(count(slow_device, recompute), 0);
  EXPECT_GT(count(slow_device, offload), 0);
}

// In less memory never faster, and no faster than the arithmetic.
TEST(ResidencyProgram, LosesTimeWithMemory) {
  const Setting setting(
      chain_graph({.units = 8, .activation_elements = 1 << 14, .parameter_elements = 1 << 14}),
      with_links(1e8));
  double before = 0;
  for (Bytes percent = 200; percent >= 20; percent -= 10) {
    const auto mixture = setting.program.solve(setting.most() * percent / 100, unlimited);
    EXPECT_GE(mixture.seconds, before * (1 - setting.settings.program_tolerance)) << percent;
    before = mixture.seconds;
  }
  EXPECT_GT(before, 2 * setting.program.solve(unlimited, unlimited).seconds);
}

// The host has room for a part of what would leave: no more goes there than that, up to one item's rounding.
TEST(ResidencyProgram, HostMemoryIsKept) {
  Machine machine = with_links(1e12);
  machine.flops_per_second = 1e6;  // to rebuild is dear
  const Setting setting(chain_of_activations(8), machine);
  const Bytes device = (setting.most() + setting.least()) / 2;
  const Bytes freely = setting.on_host(setting.choices(device));
  const Bytes fixed = setting.on_host(resident_choices(setting.problem));
  const Bytes item = Bytes{4} << 16;
  ASSERT_GT(freely, fixed + 3 * item);
  for (const Bytes items : {0U, 1U, 2U}) {
    const Bytes host = fixed + items * item;
    const auto mixture = setting.program.solve(device, host);
    EXPECT_LE(setting.on_host(setting.program.round(mixture)), host + item) << items;
    EXPECT_GT(mixture.seconds, setting.program.solve(device, unlimited).seconds);
  }
  EXPECT_GE(setting.program.most_host_bytes() + fixed, freely);
}

TEST(ResidencyProgram, LeastHostTakesFewestHostBytes) {
  Machine machine = with_links(1e12);
  machine.flops_per_second = 1e6;
  const Setting setting(chain_of_activations(8), machine);
  const auto least = [&](Bytes device) {
    return setting.on_host(setting.program.round(setting.program.least_host(device)));
  };
  EXPECT_EQ(least(2 * setting.most()), setting.on_host(resident_choices(setting.problem)));
  const Bytes device = (setting.most() + setting.least()) / 2;
  const Bytes item = Bytes{4} << 16;
  EXPECT_LT(least(device) + 2 * item, setting.on_host(setting.choices(device)));
  EXPECT_TRUE(setting.program.least_host(device).fits);
}

// Of the activations that can be made anew, unit after unit: all but the last are alike.
std::vector<ActivationChoice> rebuildable_levels(const Setting& setting, const Choices& choices) {
  std::vector<ActivationChoice> levels;
  for (const ActivationItem& item : setting.problem.items)
    if (item.rebuildable) levels.push_back(choice_of(item, choices));
  levels.pop_back();
  return levels;
}

// Of each ten units in a row as many have a choice as its share says, and so have all of them.
TEST(ResidencyProgram, RoundingHitsTheSharesInEveryPartOfTheStep) {
  PlannerSettings settings;
  settings.memory_moments = 1;
  const Setting setting(chain_of_activations(41), with_links(1e9), settings);
  for (const Bytes percent : {50U, 60U, 70U}) {
    const auto mixture = setting.program.solve(setting.most() * percent / 100, unlimited);
    ASSERT_TRUE(mixture.fits);
    // Of all classes that have three options: recompute, offload and keep.
    std::vector<double> shares(3, 0);
    for (const auto& of : mixture.shares)
      for (std::size_t o = 0; of.size() == 3 && o < 3; ++o) shares[o] += of[o];
    const double classes = shares[0] + shares[1] + shares[2];
    const std::vector<ActivationChoice> of = rebuildable_levels(setting, setting.program.round(mixture));
    ASSERT_EQ(of.size(), 40U);
    const ActivationChoice choices[] = {recompute, offload, keep};
    for (std::size_t o = 0; o < 3; ++o) {
      const double share = shares[o] / classes;
      EXPECT_NEAR(static_cast<double>(std::count(of.begin(), of.end(), choices[o])), 40 * share, 2);
      for (auto ten = of.begin(); of.end() - ten >= 10; ++ten)
        EXPECT_NEAR(static_cast<double>(std::count(ten, ten + 10, choices[o])), 10 * share, 2);
    }
  }
}

// x1 is read by units 1 and 5, and between them an op needs more memory than any other.
Graph with_skip() {
  Graph graph = chain_of_activations(8);
  graph.ops[find_op(graph, "b5")].reads.push_back(find_tensor(graph, "x1"));
  graph.tensors.push_back({"work", DataType::f32, {1 << 20}, TensorKind::activation, {}});
  graph.ops[find_op(graph, "a3")].writes.push_back(static_cast<TensorId>(graph.tensors.size() - 1));
  return graph;
}

TEST(ResidencyProgram, ASkipConnectionSpillsWhereThatIsAllowed) {
  for (const bool spills : {false, true}) {
    PlannerSettings settings;
    settings.spills = spills;
    const Setting setting(with_skip(), with_links(1e11), settings);
    const Choices choices = setting.choices(setting.least() * 9 / 10);
    EXPECT_EQ(setting.of("x1", choices), spills ? spill : offload);
    EXPECT_EQ(setting.of("x1", setting.choices(2 * setting.most())), keep);
  }
}

}  // namespace
}  // namespace stowage
