#include "offload/plan/decisions/share_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace stowage {
namespace {

ShareCost cost(double compute, double h2d, double memory, double price = 0) {
  ShareCost of;
  of.front[share_compute] = compute;
  of.front[share_h2d] = h2d;
  of.memory[0] = memory;
  of.price = price;
  return of;
}

// 10 s of arithmetic; what is not in memory comes in for 4 s each.
ShareProgram loads(double count, double room) {
  ShareProgram program;
  program.fixed = cost(10, 0, 0);
  program.decisions.push_back({{cost(0, 4, 0), cost(0, 0, 1)}, count});
  program.room = {room};
  return program;
}

TEST(ShareProgram, AMixtureFillsTheMemory) {
  const ShareAnswer answer = solve(loads(5, 1.5));
  EXPECT_NEAR(answer.bound, 3.5 * 4, 1e-4);
  EXPECT_EQ(answer.binding, LaneRole::h2d);
  EXPECT_NEAR(answer.shares[0][1], 0.3, 1e-4);
}

TEST(ShareProgram, WhatCannotFitIsTold) {
  ShareProgram program;
  program.decisions.push_back({{cost(1, 0, 2)}, 1});
  program.room = {1};
  EXPECT_FALSE(solve(program).fits);
}

// The last byte of the room is dear: without it, all of the work takes a hundred times as long.
TEST(ShareProgram, MemoryIsKeptHoweverDear) {
  ShareProgram program;
  program.decisions.push_back({{cost(1, 0, 1), cost(100, 0, 0.99)}, 1});
  program.room = {0.99};
  const ShareAnswer answer = solve(program);
  EXPECT_TRUE(answer.fits);
  EXPECT_NEAR(answer.value, 100, 1e-3);
  EXPECT_NEAR(answer.bound, 100, 1e-2);
}

// Rows that are nearly the same, and rooms that nothing fits into: shares still come to one.
TEST(ShareProgram, AlikeRowsAndLittleRoomKeepSharesWhole) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> draw(0, 1);
  for (int round = 0; round < 300; ++round) {
    ShareProgram program;
    program.fixed = cost(1, 0, 0);
    for (int d = 0; d < 40; ++d) {
      program.decisions.push_back({{}, 1.0 + d % 4});
      for (int o = 0; o < 4; ++o) {
        ShareCost& of = program.decisions.back().options.emplace_back();
        std::fill_n(of.front.begin(), share_rows - update_cuts, draw(random));
        of.back[share_h2d] = of.back[share_d2h] = draw(random);
        const double bytes = draw(random);
        for (std::size_t m = 0; m + 1 < most_memory_rows; ++m)
          of.memory[m] = bytes * (1 + 1e-9 * draw(random));
      }
    }
    program.room.assign(most_memory_rows - 1, 0.2 * round);
    const ShareAnswer answer = solve(program);
    for (const std::vector<double>& shares : answer.shares)
      ASSERT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-6) << round;
    ASSERT_LE(answer.bound, answer.value * (1 + 1e-9)) << round;
  }
}

struct Draws {
  std::mt19937 random{24};
  ShareCost option() {
    std::uniform_real_distribution<double> draw(0, 1);
    ShareCost of;
    for (std::size_t l = 0; l < share_lanes; ++l) {
      of.front[l] = draw(random);
      of.back[l] = draw(random);
    }
    of.memory[0] = draw(random);
    of.memory[1] = draw(random);
    of.price = 0.1 * draw(random);
    return of;
  }
  ShareProgram program() {
    ShareProgram of;
    of.fixed = option();
    of.fixed.memory = {};
    for (int d = 0; d < 4; ++d) {
      of.decisions.push_back({{option(), option(), option()}, 1.0 + d % 3});
      of.decisions.back().options.back().memory = {};
    }
    of.room = {1.1, 1.3};
    return of;
  }
};

// By all mixtures of a grid, for programs of two decisions.
TEST(ShareProgram, NoMixtureIsBetterAndItsBoundIsItsValue) {
  Draws draws;
  for (int round = 0; round < 200; ++round) {
    ShareProgram program;
    const auto option = [&] { return draws.option(); };
    program.fixed = option();
    program.fixed.memory = {};
    for (int d = 0; d < 2; ++d) {
      program.decisions.push_back({{option(), option()}, 1.0 + round % 3});
      program.decisions.back().options.push_back(option());
      program.decisions.back().options.back().memory = {};
    }
    program.room = {0.6, 0.8};
    const ShareAnswer answer = solve(program);
    ASSERT_TRUE(answer.fits) << round;
    EXPECT_NEAR(answer.bound, answer.value, 1e-4 * answer.value) << round;

    auto seconds = [&](const ShareCost& sum) {
      return *std::max_element(sum.front.begin(), sum.front.end()) +
             *std::max_element(sum.back.begin(), sum.back.end()) + sum.price;
    };
    auto fits = [&](const ShareCost& sum) { return sum.memory[0] <= 0.6 && sum.memory[1] <= 0.8; };
    constexpr int steps = 12;
    for (int a = 0; a <= steps; ++a)
      for (int b = 0; a + b <= steps; ++b)
        for (int c = 0; c <= steps; ++c)
          for (int d = 0; c + d <= steps; ++d) {
            ShareCost sum = program.fixed;
            const double shares[2][3] = {{1. * a / steps, 1. * b / steps, 1. * (steps - a - b) / steps},
                                         {1. * c / steps, 1. * d / steps, 1. * (steps - c - d) / steps}};
            for (std::size_t i = 0; i < 2; ++i)
              for (std::size_t o = 0; o < 3; ++o)
                sum.add(program.decisions[i].options[o], shares[i][o] * program.decisions[i].count);
            if (fits(sum)) {
              ASSERT_GE(seconds(sum), answer.bound * (1 - 1e-9)) << round;
            }
          }

    ShareCost mixture = program.fixed;
    for (std::size_t i = 0; i < 2; ++i) {
      double whole = 0;
      for (std::size_t o = 0; o < 3; ++o) {
        whole += answer.shares[i][o];
        mixture.add(program.decisions[i].options[o], answer.shares[i][o] * program.decisions[i].count);
      }
      EXPECT_NEAR(whole, 1, 1e-6) << round;
    }
    EXPECT_NEAR(seconds(mixture), answer.value, 1e-6 * answer.value) << round;
    EXPECT_TRUE(mixture.memory[0] <= 0.6 + 1e-6 && mixture.memory[1] <= 0.8 + 1e-6) << round;
    for (std::size_t m = 0; m < 2; ++m) EXPECT_NEAR(answer.memory[m], mixture.memory[m], 1e-6) << round;
  }
}

// Each of the decisions several times, and one that differs in its bytes alone.
TEST(ShareProgram, AlikeDecisionsAreOneOfTheirCount) {
  Draws draws;
  for (int round = 0; round < 50; ++round) {
    ShareProgram program = draws.program();
    program.decisions.push_back(program.decisions.front());
    for (ShareCost& option : program.decisions.back().options) option.memory[1] *= 0.5;
    ShareProgram repeated = program;
    for (ShareDecision& decision : repeated.decisions) decision.count = 1;
    for (const ShareDecision& decision : program.decisions)
      for (double more = 1; more < decision.count; ++more)
        repeated.decisions.push_back({decision.options, 1});
    repeated.decisions = with_alike_as_one(std::move(repeated.decisions));
    EXPECT_EQ(repeated.decisions.size(), program.decisions.size());
    EXPECT_NEAR(solve(repeated).value, solve(program).value, 1e-3 * solve(program).value) << round;
  }
}

TEST(ShareTable, AGivenDecisionIsAPartOfWhatIsFixed) {
  Draws draws;
  for (int round = 0; round < 50; ++round) {
    const ShareProgram program = draws.program();
    const std::vector<double> shares{0.25, 0.5, 0.25};
    ShareProgram without = program;
    for (std::size_t o = 0; o < shares.size(); ++o)
      without.fixed.add(program.decisions[1].options[o], shares[o] * program.decisions[1].count);
    without.decisions.erase(without.decisions.begin() + 1);

    const ShareTable table(program.fixed, program.decisions, program.room.size());
    const ShareAnswer answer = table.solve({.room = program.room, .given = GivenShares{1, shares}});
    const ShareAnswer expected = solve(without);
    EXPECT_NEAR(answer.value, expected.value, 1e-9) << round;
    EXPECT_EQ(answer.fits, expected.fits) << round;
    EXPECT_EQ(answer.shares[1], shares) << round;
  }
}

TEST(ShareTable, APricedRowIsUsedLess) {
  const ShareProgram program = loads(4, 4);
  const ShareTable table(program.fixed, program.decisions, 1);
  // A byte saves 4 s of the link, of which the first 6 stand out behind the arithmetic.
  EXPECT_NEAR(table.solve({.room = {4}, .last_row_price = 1}).memory[0], 1.5, 1e-3);
  EXPECT_NEAR(table.solve({.room = {4}, .last_row_price = 5}).memory[0], 0, 1e-3);
}

}  // namespace
}  // namespace stowage
