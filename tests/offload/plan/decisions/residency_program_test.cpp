#include "offload/plan/decisions/residency_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "offload/plan/decisions/extreme_choices.h"
#include "src/graph/cost.h"
#include "tests/support/chain_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using enum ActivationChoice;
using testing::chain_graph;

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

// The sum of the options in which each bucket and item has this choice, or the next lower one; sets
// `choices`.
ShareCost counted(const DecisionClasses& classes, LoadChoice load, ActivationChoice activation,
                  Choices& choices) {
  ShareCost sum = classes.fixed();
  for (const DecisionClasses::Class& of : classes.all()) {
    const bool is_activation = of.members.front().is_activation;
    const int wanted = is_activation ? static_cast<int>(activation) : static_cast<int>(load);
    std::size_t option = 0;
    while (option + 1 < of.levels.size() && of.levels[option + 1] <= wanted) ++option;
    sum.add(of.options[option], static_cast<double>(of.members.size()));
    for (const DecisionClasses::Member& member : of.members) classes.set(member, of.levels[option], choices);
  }
  return sum;
}

// Seconds by phase and lane, and host bytes, of what something is decided about.
struct Step {
  Step(const Problem& problem, const Draft& draft) {
    const Machine& machine = *problem.machine;
    std::vector<std::uint8_t> on_device(problem.graph->ops.size(), 0);
    // Updates of the step before count in the front.
    const auto lanes_at = [&](Position p) -> std::array<double, share_lanes>& {
      const SequenceStep& step = draft.sequence[static_cast<std::size_t>(p)];
      const Phase phase = problem.graph->op(step.op).phase;
      return phase == Phase::update || (phase == Phase::forward && !step.recompute) ? front : back;
    };
    for (std::size_t p = 0; p < draft.sequence.size(); ++p) {
      const OpId op = draft.sequence[p].op;
      on_device[op] = 1;
      lanes_at(static_cast<Position>(p))[share_compute] += op_seconds(problem.graph->op(op), machine);
    }
    for (OpId op = 0; op < on_device.size(); ++op) {
      const Op& of = problem.graph->op(op);
      if (of.phase == Phase::update && !on_device[op] && of.writes.front() != problem.graph->clip)
        front[share_host] += host_seconds(of, machine);
    }
    std::vector<std::uint8_t> moves(problem.layout.buckets.size(), 0), is_live = moves;
    for (const DraftLifetime& lifetime : draft.lifetimes) {
      is_live[lifetime.bucket] = 1;
      if (!is_decided(problem, lifetime.bucket)) continue;
      const Bytes bytes = problem.layout.buckets[lifetime.bucket].bytes;
      if (lifetime.prefetched) lanes_at(lifetime.first_use)[share_h2d] += machine.h2d.seconds(bytes);
      if (lifetime.offloaded) lanes_at(lifetime.last_before_update)[share_d2h] += machine.d2h.seconds(bytes);
      moves[lifetime.bucket] |= lifetime.prefetched || lifetime.offloaded;
    }
    for (BucketId id = 0; id < moves.size(); ++id)
      if (moves[id] || (problem.layout.roles[id] == BucketRole::optimizer_state && !is_live[id]))
        on_host += static_cast<double>(problem.layout.buckets[id].bytes);
  }
  static bool is_decided(const Problem& problem, BucketId id) {
    const BucketRole role = problem.layout.roles[id];
    return role == BucketRole::parameter || role == BucketRole::input ||
           problem.layout.parameters_of[id] != no_id ||
           std::any_of(problem.items.begin(), problem.items.end(), [&](const ActivationItem& item) {
             return std::find(item.buckets.begin(), item.buckets.end(), id) != item.buckets.end();
           });
  }
  std::array<double, share_lanes> front{}, back{};
  double on_host = 0;
};

// Where all buckets, or all items, take another choice, what the program counts changes by what the step's
// own seconds and bytes change by. Of the ops that are replayed it may leave some out.
TEST(DecisionClasses, CountWhatAnotherChoiceChanges) {
  PlannerSettings settings;
  settings.cuts = settings.speculates = settings.remakes = false;
  const auto seeds = testing::draws<std::uint64_t>(80, 10);
  double off = 0;  // of the bytes where most is live, which are averages over alike stages
  std::uint64_t most_replays = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::random_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    const DecisionClasses classes(problem, settings);
    const std::size_t host_row = classes.base().size();
    // By lane of the front and of the back and, last, host bytes: what is counted, and what the step has.
    using Sums = std::array<std::pair<double, double>, 2 * share_lanes + 1>;
    const auto sums_of = [&](LoadChoice load, ActivationChoice activation) {
      Choices choices = lowest_choices(problem);
      const ShareCost sum = counted(classes, load, activation, choices);
      const Sketch sketch = Sketcher(problem, choices).serial();
      const Step step(problem, sketch.draft);
      Sums sums;
      for (std::size_t lane = 0; lane < share_lanes; ++lane) {
        sums[lane] = {sum.front[lane], step.front[lane]};
        sums[share_lanes + lane] = {sum.back[lane], step.back[lane]};
      }
      sums.back() = {sum.memory[host_row], step.on_host};
      if (load == LoadChoice::each_op && activation == recompute) {
        double most = 0;
        for (std::size_t m = 0; m < host_row; ++m) most = std::max(most, sum.memory[m] + classes.base()[m]);
        off += std::abs(most / static_cast<double>(sketch.live_peak_bytes) - 1);
      }
      return sums;
    };
    const auto expect_same_change = [](const Sums& a, const Sums& b) {
      for (std::size_t row = 0; row < a.size(); ++row)
        EXPECT_NEAR(b[row].first - a[row].first, b[row].second - a[row].second,
                    1e-6 * (a[row].second + b[row].second))
            << "row " << row;
    };
    const Sums lowest = sums_of(LoadChoice::each_op, recompute), kept = sums_of(LoadChoice::each_op, keep);
    for (const LoadChoice load : {LoadChoice::each_unit, LoadChoice::held, LoadChoice::resident})
      expect_same_change(lowest, sums_of(load, recompute));
    expect_same_change(kept, sums_of(LoadChoice::each_op, offload));
    constexpr std::size_t row = share_lanes + share_compute;
    const double replays = lowest[row].first - kept[row].first,
                 of_step = lowest[row].second - kept[row].second;
    EXPECT_LE(replays, of_step * (1 + 1e-6) + 1e-6 * kept[row].second);
    most_replays += replays >= 0.9 * of_step ? 1 : 0;
  }
  EXPECT_LT(off, 0.03 * static_cast<double>(seeds));
  EXPECT_GT(2 * most_replays, seeds);
}

// One op writes x1, which crosses into the next unit and no replay rebuilds, and the smaller `mask`, which
// its own backward reads. To rebuild the mask takes the op's time.
TEST(DecisionClasses, CountAReplayForWhatItRebuildsHoweverLargeWhatItDoesNot) {
  Graph graph = chain_graph({.units = 1});
  graph.tensors.push_back({"mask", DataType::f32, {16}, TensorKind::activation, {}});
  const auto mask = static_cast<TensorId>(graph.tensors.size() - 1);
  const OpId writer = testing::find_op(graph, "b0");
  graph.ops[writer].writes.push_back(mask);
  graph.ops[testing::find_op(graph, "b.backward0")].reads.push_back(mask);
  const Machine machine;
  PlannerSettings settings;
  settings.remakes = false;
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const DecisionClasses classes(problem, settings);
  const double seconds = op_seconds(graph.op(writer), machine);
  std::size_t found = 0;
  for (const DecisionClasses::Class& of : classes.all()) {
    const DecisionClasses::Member& member = of.members.front();
    if (!member.is_activation || problem.items[member.index].writer != writer ||
        !problem.items[member.index].rebuildable)
      continue;
    ++found;
    ASSERT_EQ(of.levels.front(), static_cast<std::uint8_t>(recompute));
    EXPECT_DOUBLE_EQ(of.options.front().back[share_compute] - of.options.back().back[share_compute], seconds);
  }
  EXPECT_EQ(found, 1U);
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

// No two units are alike: each value and each parameter is alone in its class and of its kind.
Graph chain_of_unlike_units(int units) {
  Graph graph = chain_of_activations(units);
  for (Tensor& tensor : graph.tensors) {
    const std::size_t digit = tensor.name.find_first_of("0123456789");
    if (tensor.shape.size() != 1 || digit == std::string::npos) continue;
    const int unit = std::stoi(tensor.name.substr(digit));
    tensor.shape.front() += tensor.shape.front() * (unit * 37 % units) / units;
  }
  return graph;
}

TEST(ResidencyProgram, RoundingWhatIsAloneOfItsKindKeepsToTheMixture) {
  const Setting setting(chain_of_unlike_units(41), with_links(1e9));
  for (const Bytes percent : {40U, 50U, 60U, 70U, 80U}) {
    const auto mixture = setting.program.solve(setting.most() * percent / 100, unlimited);
    ASSERT_TRUE(mixture.fits);
    const Choices choices = setting.program.round(mixture, ResidencyProgram::Rounding::balanced);
    EXPECT_NEAR(setting.program.seconds(choices), mixture.seconds, 0.02 * mixture.seconds) << percent;
    EXPECT_LT(setting.serial_bytes(choices), setting.most() * (percent + 5) / 100) << percent;
  }
}

}  // namespace
}  // namespace stowage
