// The search over grids with costs that are plain numbers: no graph and no planner.
#include "offload/parallel/grid_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "offload/parallel/pipeline.h"
#include "tests/support/draws.h"

namespace stowage {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// Half-blocks of random times. A stage's bound and plan are its sums times factors of its own.
class DrawnCosts final : public GridCosts {
 public:
  DrawnCosts(std::mt19937_64& random, std::uint32_t half_blocks) {
    std::uniform_real_distribution<double> draw(0.5, 2);
    for (std::uint32_t block = 0; block < half_blocks; ++block) {
      HalfBlockSums of;
      of.forward_seconds = draw(random);
      of.backward_seconds = 2 * of.forward_seconds;
      of.sent_bytes = draw(random);
      blocks_.push_back(of);
    }
    seed_ = random();
  }
  const PrefixSums& sums(const GridShape& shape) override {
    std::vector<HalfBlockSums> blocks = blocks_;
    for (HalfBlockSums& of : blocks) {
      // Less work for each part, but no part of it is free.
      const double factor = static_cast<double>(shape.samples) * (1 + 0.1 * shape.parts);
      of.forward_seconds *= factor;
      of.backward_seconds *= factor;
    }
    return sums_.insert_or_assign(shape, PrefixSums(blocks)).first->second;
  }
  StageRoom room(const GridShape& /*shape*/) override { return {&machine_, unlimited, unlimited}; }
  double send_seconds(const GridShape& /*shape*/, int /*stage*/, double bytes) override {
    return 0.1 * bytes;
  }
  bool may_plan(const GridShape& shape) override { return shape.samples < too_large; }
  double bound_seconds(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges) override {
    return seconds_of(shape, ranges) * (1 + 0.2 * noise(shape, stage, ranges));
  }
  std::optional<StagePlan> plan(const GridShape& shape, int stage,
                                const std::vector<HalfBlocks>& ranges) override {
    ++work_;
    planned.insert(shape);
    const double noisy = noise(shape, stage, ranges);
    if (noisy > fits) return {};
    StagePlan plan;
    plan.seconds = seconds_of(shape, ranges) * (1 + 0.2 * noisy + 0.3 * noise(shape, stage + 100, ranges));
    const HalfBlockSums of = sums(shape).of(ranges);
    plan.way_seconds = (of.forward_seconds + of.backward_seconds) / shape.ranges * (1 + noisy);
    return plan;
  }
  std::uint64_t work() const override { return work_; }

  std::set<GridShape> planned;
  double fits = 0.9;  // stages of more noise do not fit
  std::int64_t too_large = 1 << 20;

 private:
  double seconds_of(const GridShape& shape, const std::vector<HalfBlocks>& ranges) {
    return least_seconds(sums(shape).of(ranges), shape.micro_batches, room(shape));
  }
  double noise(const GridShape& shape, int stage, const std::vector<HalfBlocks>& ranges) const {
    std::vector<std::uint32_t> of{
        static_cast<std::uint32_t>(seed_),       static_cast<std::uint32_t>(shape.stages),
        static_cast<std::uint32_t>(shape.parts), static_cast<std::uint32_t>(shape.samples),
        static_cast<std::uint32_t>(shape.order), static_cast<std::uint32_t>(stage)};
    for (const auto& [first, last] : ranges) {
      of.push_back(first);
      of.push_back(last);
    }
    std::seed_seq seeds(of.begin(), of.end());
    std::mt19937_64 random(seeds);
    return std::uniform_real_distribution<double>(0, 1)(random);
  }
  Machine machine_;
  std::vector<HalfBlockSums> blocks_;
  std::map<GridShape, PrefixSums> sums_;
  std::uint64_t seed_ = 0, work_ = 0;
};

std::vector<GridShape> shapes(int devices, std::int64_t batch) {
  std::vector<GridShape> all;
  for (int parts = 1; parts <= devices; parts *= 2)
    for (int stages = 1; stages * parts <= devices; ++stages)
      for (std::int64_t samples = 1; samples * parts <= batch; samples *= 2)
        for (const int ranges : {1, 2})
          if ((stages > 1 || ranges == 1) && stages * ranges <= 6)
            all.push_back(
                {stages, parts, 1, samples, batch / parts / samples, GridOrder::one_f_one_b, ranges});
  return all;
}

// Every cut into so many stages.
void each_cut(std::uint32_t half_blocks, int stages, std::vector<std::uint32_t>& cuts,
              const std::function<void(const std::vector<std::uint32_t>&)>& visit) {
  if (static_cast<int>(cuts.size()) == stages) {
    cuts.push_back(half_blocks);
    visit(cuts);
    cuts.pop_back();
    return;
  }
  for (std::uint32_t cut = cuts.back() + 1; cut < half_blocks; ++cut) {
    cuts.push_back(cut);
    each_cut(half_blocks, stages, cuts, visit);
    cuts.pop_back();
  }
}

double largest(const PrefixSums& sums, const std::vector<std::uint32_t>& cuts, std::int64_t micro_batches,
               const StageRoom& room) {
  double most = 0;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s)
    most = std::max(most, least_seconds(sums.of(cuts[s], cuts[s + 1]), micro_batches, room));
  return most;
}

TEST(GridSearch, EvenCutsMakeTheSlowestStageAsFastAsCanBe) {
  std::mt19937_64 random(3);
  for (int instance = 0; instance < 40; ++instance) {
    DrawnCosts costs(random, 7);
    for (int stages = 1; stages <= 7; ++stages) {
      const GridShape shape{stages, 1, 1, 1, 4, GridOrder::one_f_one_b};
      const PrefixSums& sums = costs.sums(shape);
      double best = infinite;
      std::vector<std::uint32_t> cuts{0};
      each_cut(7, stages, cuts, [&](const std::vector<std::uint32_t>& all) {
        best = std::min(best, largest(sums, all, 4, costs.room(shape)));
      });
      const auto even = even_cuts(sums, static_cast<std::uint32_t>(stages), 4, costs.room(shape));
      ASSERT_EQ(even.size(), static_cast<std::size_t>(stages) + 1);
      EXPECT_TRUE(std::is_sorted(even.begin(), even.end(), std::less_equal<>()));
      EXPECT_NEAR(largest(sums, even, 4, costs.room(shape)), best, 1e-6 * best);
    }
  }
}

// The best of all shapes with even cuts, each timed by its plans.
TEST(GridSearch, FindsTheBestGridWithinWhatItPromises) {
  std::mt19937_64 random(5);
  int without = 0;
  for (int instance = 0; instance < testing::draws(200, 60); ++instance) {
    DrawnCosts costs(random, 6);
    GridQuestion question;
    question.shapes = shapes(4, 8);
    question.most_work = 1'000'000;
    question.close_enough = instance % 2 == 0 ? 0 : 0.03;
    double best = infinite;
    for (const GridShape& shape : question.shapes) {
      if (const auto grid = time_grid(costs, shape, even_cuts(costs, shape), Rung::plans))
        best = std::min(best, grid->step_seconds);
    }
    costs.planned.clear();
    const GridSearchAnswer answer = search_grids(costs, question);
    if (best == infinite) {
      EXPECT_TRUE(answer.grids.empty());
      ++without;
      continue;
    }
    ASSERT_FALSE(answer.grids.empty());
    const double found = answer.grids.front().step_seconds;
    EXPECT_LE(found, best * (1 + question.close_enough) * (1 + 1e-12));
    EXPECT_LE(answer.bound, found);
    EXPECT_LT(costs.planned.size(), question.shapes.size()) << "every shape was planned";
  }
  EXPECT_LT(without, 100);
}

TEST(GridSearch, MovesHalfBlocksOutOfTheSlowestStage) {
  std::mt19937_64 random(7);
  int moved = 0, turned = 0;
  for (int instance = 0; instance < 40; ++instance) {
    DrawnCosts costs(random, 9);
    costs.fits = 1;
    const GridShape shape{3, 1, 1, 1, 8, GridOrder::one_f_one_b, 1 + instance % 2};
    GridQuestion question;
    question.shapes = {shape};
    const auto even = even_cuts(costs, shape);
    const double before = time_grid(costs, shape, even, Rung::plans)->step_seconds;
    const GridSearchAnswer answer = search_grids(costs, question);
    const Grid& best = answer.grids.front();
    EXPECT_LE(best.step_seconds, before);
    EXPECT_DOUBLE_EQ(time_grid(costs, best.shape, best.cuts, Rung::plans)->step_seconds, best.step_seconds);
    moved += best.cuts != even ? 1 : 0;
    turned += best.shape.order == GridOrder::gpipe ? 1 : 0;
    EXPECT_TRUE(shape.ranges == 1 || best.shape == shape);
  }
  EXPECT_GT(moved, 5);
  EXPECT_GT(turned, 2) << "the other order is faster for some";
}

TEST(GridShape, HasRangesInTurn) {
  const GridShape shape{2, 1, 1, 1, 4, GridOrder::one_f_one_b, 2};
  EXPECT_THAT(ranges_of(shape, {0, 1, 3, 6, 8}, 0),
              ::testing::ElementsAre(HalfBlocks{0, 1}, HalfBlocks{3, 6}));
  EXPECT_THAT(ranges_of(shape, {0, 1, 3, 6, 8}, 1),
              ::testing::ElementsAre(HalfBlocks{1, 3}, HalfBlocks{6, 8}));
}

// All grids of one stage have lower bounds than those of two, and plans far above them.
class MisleadingCosts final : public GridCosts {
 public:
  const PrefixSums& sums(const GridShape& /*shape*/) override { return sums_; }
  StageRoom room(const GridShape& /*shape*/) override { return {&machine_, unlimited, unlimited}; }
  double send_seconds(const GridShape& /*shape*/, int /*stage*/, double /*bytes*/) override { return 0; }
  bool may_plan(const GridShape& /*shape*/) override { return true; }
  double bound_seconds(const GridShape& shape, int, const std::vector<HalfBlocks>&) override {
    return shape.stages == 1 ? 1 : 1.1;
  }
  std::optional<StagePlan> plan(const GridShape& shape, int, const std::vector<HalfBlocks>&) override {
    ++work_;
    StagePlan plan;
    plan.seconds = shape.stages == 1 ? 5 : 1.2;
    return plan;
  }
  std::uint64_t work() const override { return work_; }

 private:
  Machine machine_;
  PrefixSums sums_{std::vector<HalfBlockSums>(4)};
  std::uint64_t work_ = 0;
};

// One plan says so, and the search turns to other kinds.
TEST(GridSearch, LearnsWhichBoundsAreFarFromTheirPlans) {
  MisleadingCosts costs;
  GridQuestion question;
  for (int stages : {1, 2})
    for (std::int64_t samples = 1; samples <= 16; ++samples)
      question.shapes.push_back({stages, 1, 1, samples, 1, GridOrder::one_f_one_b});
  question.most_work = 4;
  EXPECT_EQ(search_grids(costs, question).grids.front().step_seconds, 1.2);
}

TEST(GridSearch, EndsWhereItIsAskedTo) {
  std::mt19937_64 random(9);
  DrawnCosts costs(random, 6);
  GridQuestion question;
  question.shapes = shapes(4, 8);
  question.most_work = 1;
  EXPECT_TRUE(search_grids(costs, question).limited);
  question.most_work = 1000;
  int asked = 0;
  question.keep_going = [&](const std::string&) { return ++asked < 29; };
  const GridSearchAnswer answer = search_grids(costs, question);
  EXPECT_TRUE(answer.stopped);
  question.highest = Rung::sums;
  question.keep_going = [](const std::string&) { return true; };
  const GridSearchAnswer by_sums = search_grids(costs, question);
  EXPECT_EQ(by_sums.shapes, question.shapes.size());
  EXPECT_GE(by_sums.grids.size(), 16U);
  EXPECT_EQ(by_sums.bound, by_sums.grids.front().step_seconds);
}

// A shape too large to plan stays below, and what it takes at the least counts for the bound.
TEST(GridSearch, DoesNotPlanWhatIsTooLarge) {
  std::mt19937_64 random(11);
  DrawnCosts costs(random, 6);
  costs.too_large = 2;
  GridQuestion question;
  question.shapes = shapes(4, 8);
  const GridSearchAnswer answer = search_grids(costs, question);
  for (const GridShape& shape : costs.planned) EXPECT_LT(shape.samples, 2);
  EXPECT_FALSE(answer.below.empty());
  EXPECT_LE(answer.bound, answer.below.front().step_seconds);
}

// Equal stages, and sends that stages in order hide or wait for: the formula is what the simulated pipeline
// takes.
TEST(GridSearch, AStepOfEqualStagesIsThatOfTheSimulation) {
  for (int stages = 1; stages <= 6; ++stages)
    for (const int ranges : {1, 2, 4})
      for (std::int64_t micro_batches : {1, 2, 5, 12}) {
        const GridShape shape{stages, 1, 1, 1, micro_batches, GridOrder::one_f_one_b, ranges};
        const auto count = static_cast<std::size_t>(stages);
        PipelineQuestion question;
        question.schedule = PipelineSchedule::breadth_first;
        question.virtual_stages = ranges;
        question.micro_batches = micro_batches;
        question.times.assign(count * static_cast<std::size_t>(ranges), {1.5, 1.5});
        // One micro-batch goes through alone, whatever the sends take. Of several, forward and backward take
        // turns, so only instant sends have no part in the pace.
        const double send = micro_batches == 1 && stages > 1 ? 0.25 : 0;
        question.links.assign(question.times.size() - 1, {send, 0});
        const double own = 3.0 * static_cast<double>(micro_batches * ranges);
        const double step =
            grid_step_seconds(shape, std::vector<double>(count, own), std::vector<double>(count, 3),
                              std::vector<double>(count - 1, send));
        EXPECT_DOUBLE_EQ(step, simulate_pipeline(question).seconds)
            << stages << " " << ranges << " " << micro_batches;
      }
}

TEST(GridSearch, AStepFallsWithNoneOfItsTimes) {
  std::mt19937_64 random(13);
  std::uniform_real_distribution<double> draw(0.5, 8);
  for (int instance = 0; instance < 500; ++instance) {
    const GridShape shape{3, 1, 1, 1, 1 + instance % 9, GridOrder::one_f_one_b, 1 << instance % 3};
    std::vector<double> times[3]{{0, 0, 0}, {0, 0, 0}, {0, 0}};
    for (auto& of : times)
      for (double& seconds : of) seconds = draw(random);
    const auto step = [&] { return grid_step_seconds(shape, times[0], times[1], times[2]); };
    const double before = step();
    auto& of = times[random() % 3];
    of[random() % of.size()] += draw(random);
    EXPECT_GE(step(), before * (1 - 1e-12));
  }
}

TEST(GridSearch, WhatDoesNotFitIsMovedOrRefused) {
  Machine machine;
  machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = 10;
  HalfBlockSums stage;
  stage.forward_seconds = 1;
  stage.backward_seconds = 2;
  stage.weight_bytes = stage.gradient_bytes = 100;
  stage.state_bytes = 200;
  stage.host_update_seconds = 80;
  EXPECT_DOUBLE_EQ(least_seconds(stage, 4, {&machine, 400, 0}), 12);     // all of it fits
  EXPECT_DOUBLE_EQ(least_seconds(stage, 1, {&machine, 200, 1000}), 40);  // half is updated on the host
  stage.host_update_seconds = 0;
  EXPECT_DOUBLE_EQ(least_seconds(stage, 1, {&machine, 200, 1000}), 5);  // half of the weights come in
  EXPECT_DOUBLE_EQ(least_seconds(stage, 1, {&machine, 200, 150}), 5);
  EXPECT_EQ(least_seconds(stage, 1, {&machine, 200, 149}), infinite);
}

TEST(GridShape, HasSoManyForwardsAhead) {
  const GridShape shape{4, 1, 1, 1, 3, GridOrder::one_f_one_b};
  EXPECT_EQ(shape.ahead(0), 3U);
  EXPECT_EQ(shape.ahead(2), 2U);
  EXPECT_EQ(shape.ahead(3), 1U);
  EXPECT_EQ((GridShape{4, 1, 1, 1, 7, GridOrder::gpipe}).ahead(3), 7U);
}

}  // namespace
}  // namespace stowage
