#include "offload/plan/schedule/waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace stowage {
namespace {

// Everything reachable over three unrolled steps, by brute force. Node: step * count + instruction.
std::vector<std::vector<bool>> closure(const Plan& plan, const std::vector<std::vector<Wait>>& waits) {
  std::size_t count = plan.instructions.size(), all = 3 * count;
  std::vector<std::vector<bool>> after(all, std::vector<bool>(all, false));
  auto edge = [&](std::size_t from, std::size_t to) { after[to][from] = true; };
  for (std::size_t step = 0; step < 3; ++step)
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < i; ++j)
        if (plan.instructions[i].lane == plan.instructions[j].lane) edge(step * count + j, step * count + i);
      if (i > plan.gate) edge(step * count + plan.gate, step * count + i);
      for (const Wait& wait : waits[i])
        if (wait.steps_back <= step)
          edge((step - wait.steps_back) * count + wait.instruction, step * count + i);
      if (step == 0) continue;
      edge((step - 1) * count + plan.gate, step * count + i);
      for (std::size_t j = 0; j < count; ++j)
        if (plan.instructions[i].lane == plan.instructions[j].lane)
          edge((step - 1) * count + j, step * count + i);
    }
  for (std::size_t k = 0; k < all; ++k)
    for (std::size_t i = 0; i < all; ++i)
      if (after[i][k])
        for (std::size_t j = 0; j < all; ++j)
          if (after[k][j]) after[i][j] = true;
  return after;
}

std::vector<std::vector<Wait>> waits_of(const Plan& plan) {
  std::vector<std::vector<Wait>> waits;
  for (const Instruction& instruction : plan.instructions) waits.push_back(instruction.waits);
  return waits;
}

bool holds(const Plan& plan, const std::vector<std::vector<bool>>& after, std::size_t i, const Wait& wait) {
  std::size_t count = plan.instructions.size();
  return after[2 * count + i][(2 - wait.steps_back) * count + wait.instruction];
}

Plan random_lanes(std::mt19937& random, std::size_t count) {
  Plan plan;
  plan.instructions.resize(count);
  for (Instruction& instruction : plan.instructions) instruction.lane = static_cast<LaneRole>(random() % 3);
  plan.gate = static_cast<InstructionId>(count - 4);
  plan.instructions[plan.gate].lane = LaneRole::host;
  return plan;
}

TEST(Waits, WhatIsLeftImpliesAllThatWasWantedAndNothingInItIsImpliedByTheRest) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::size_t count = 8 + random() % 14;
    Plan plan = random_lanes(random, count);
    std::vector<WantedWait> wanted;
    for (InstructionId i = 1; i < count; ++i)
      for (unsigned n = random() % 4; n-- > 0;)
        wanted.push_back({i, {static_cast<InstructionId>(random() % i), 0}});
    for (InstructionId i = 0; i < plan.gate; ++i)
      if (random() % 3 == 0) wanted.push_back({i, {static_cast<InstructionId>(random() % count), 1}});
    std::shuffle(wanted.begin(), wanted.end(), random);
    reduce_waits(plan, wanted);

    auto kept = waits_of(plan);
    auto after = closure(plan, kept);
    for (const auto& [waiter, on] : wanted)
      EXPECT_TRUE(holds(plan, after, waiter, on)) << round << ": " << waiter;
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t n = 0; n < kept[i].size(); ++n) {
        auto without = kept;
        without[i].erase(without[i].begin() + std::ptrdiff_t(n));
        EXPECT_FALSE(holds(plan, closure(plan, without), i, kept[i][n])) << round << ": " << i;
      }
  }
}

}  // namespace
}  // namespace stowage
