#include "offload/parallel/search.h"

#include <gtest/gtest.h>

#include "offload/parallel/stage_table.h"
#include "tests/support/draws.h"
#include "tests/support/parallel_chains.h"

namespace stowage {
namespace {

// All of them in CI, too: rare combinations of what a chain may have come in one of a hundred.
const int chains = testing::sanitized ? 100 : 2000;
constexpr double equal = 1e-11;  // relative: the same seconds added in another order

// Recomputes what a pipeline claims from the layers' variants.
void expect_sound(const ParallelCosts& costs, StageTable& table, const Pipeline& pipeline) {
  const std::vector<StageDetail> details = table.details(pipeline);
  int devices = 0, next = 0;
  double way = 0, pace = 0, tail = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const PlacedStage& stage = pipeline.stages[s];
    ASSERT_EQ(stage.first, next);
    ASSERT_LT(stage.first, stage.last);
    next = stage.last;
    devices += table.layouts()[static_cast<std::size_t>(stage.layout)].devices;
    EXPECT_LE(details[s].bytes, costs.memory);
    const bool within = costs.sending == Sending::within;
    const double sends = details[s].front_send_seconds + details[s].back_send_seconds;
    const double seconds = details[s].forward_seconds + details[s].backward_seconds;
    way += seconds + (within ? sends : sends / 2);
    pace = std::max(
        pace, within ? seconds + sends
                     : std::max({seconds, details[s].front_send_seconds, details[s].back_send_seconds}));
    tail = std::max(tail, details[s].exchange_seconds);
    const std::int64_t behind = static_cast<std::int64_t>(pipeline.stages.size() - s);
    if (costs.order == PipelineOrder::gpipe) {
      EXPECT_EQ(details[s].in_flight, costs.micro_batches);
    } else if (costs.in_flight == InFlight::stages) {
      EXPECT_EQ(details[s].in_flight, std::min(costs.micro_batches, behind));
    }
  }
  EXPECT_EQ(next, static_cast<int>(costs.layers.size()));
  EXPECT_LE(devices, costs.devices);
  if (costs.use_all_devices) {
    EXPECT_EQ(devices, costs.devices);
  }
  EXPECT_NEAR(pipeline.way, way, equal * way);
  EXPECT_NEAR(pipeline.pace, pace, equal * pace);
  EXPECT_NEAR(pipeline.tail, tail, equal * way);
}

TEST(ParallelSearch, FindsWhatTryingAllPipelinesFinds) {
  std::mt19937_64 random(7);
  int limited = 0, none = 0, grids_differ = 0;
  for (int chain = 0; chain < chains; ++chain) {
    SCOPED_TRACE(chain);
    ParallelCosts costs = testing::random_chain(random);
    for (const ParallelObjective objective : {ParallelObjective::step, ParallelObjective::largest_stage}) {
      costs.objective = objective;
      StageTable table(costs);
      const SearchQuestion question = question_of(costs);
      const auto tried = testing::best_by_trying(costs, false);
      const SearchAnswer found = search_pipeline(table, question);
      ASSERT_TRUE(found.proven);
      ASSERT_EQ(found.best.has_value(), tried.has_value());
      limited += costs.memory != unlimited;
      none += !tried.has_value();
      if (tried) {
        EXPECT_NEAR(question.value(*found.best), tried->value, equal * tried->value);
        EXPECT_EQ(found.bound, question.value(*found.best));
        expect_sound(costs, table, *found.best);
      }
      const SearchAnswer by_caps = search_by_caps(table, question);
      ASSERT_EQ(by_caps.best.has_value(), tried.has_value());
      if (tried) {
        EXPECT_NEAR(question.value(*by_caps.best), tried->value, equal * tried->value);
      }

      const auto best_grid = testing::best_by_trying(costs, true);
      const GridsAnswer grids = search_grids(table, question);
      ASSERT_TRUE(grids.proven);
      ASSERT_EQ(!grids.grids.empty(), best_grid.has_value());
      if (best_grid) {
        const Pipeline& grid = *grids.grids.front().answer.best;
        EXPECT_NEAR(question.value(grid), best_grid->value, equal * best_grid->value);
        expect_sound(costs, table, grid);
        // Asked for one, the search may leave out every other.
        const GridsAnswer one = search_grids(table, question, 1);
        ASSERT_EQ(one.grids.size(), 1U);
        EXPECT_EQ(question.value(*one.grids.front().answer.best), question.value(grid));
        grids_differ += best_grid->value > tried->value * (1 + equal);
      }
    }
  }
  EXPECT_GT(limited, chains / 2);
  EXPECT_GT(none, chains / 50);
  EXPECT_GT(grids_differ, chains / 4);
}

// Layers with one variant for each of several numbers of devices.
ParallelCosts plain_costs(int layers, int devices, std::mt19937_64& random) {
  ParallelCosts costs;
  costs.devices = devices;
  costs.micro_batches = 8;
  for (int layer = 0; layer < layers; ++layer) {
    ParallelLayer& of = costs.layers.emplace_back();
    of.name = std::to_string(layer);
    const double seconds = 1 + static_cast<double>(random() % 1000) / 1000;
    for (int parts = 1; parts <= devices; ++parts) {
      LayerVariant& variant = of.variants.emplace_back();
      variant.name = std::to_string(parts);
      variant.parts = parts;
      variant.forward_seconds = seconds / parts;
      variant.backward_seconds = 2 * seconds / parts;
      variant.bytes = 100;
      variant.bytes_in_flight = static_cast<Bytes>(60 / parts);
    }
  }
  return costs;
}

TEST(ParallelSearch, KeepsItsTechniquesApart) {
  std::mt19937_64 random(11);
  std::uint64_t with_bounds = 0, without = 0;
  for (int chain = 0; chain < 60; ++chain) {
    const ParallelCosts costs = testing::random_chain(random);
    StageTable table(costs);
    SearchQuestion question = question_of(costs);
    const SearchAnswer bounded = search_pipeline(table, question);
    question.techniques.bounds = false;
    const SearchAnswer unbounded = search_pipeline(table, question);
    question.techniques.most_labels = 0;  // two at least: caps in most chains
    const SearchAnswer few = search_pipeline(table, question);
    ASSERT_EQ(bounded.best.has_value(), unbounded.best.has_value());
    ASSERT_EQ(bounded.best.has_value(), few.best.has_value());
    if (!bounded.best) continue;
    EXPECT_NEAR(question.value(*bounded.best), question.value(*unbounded.best), equal * bounded.best->way);
    EXPECT_NEAR(question.value(*bounded.best), question.value(*few.best), equal * bounded.best->way);
    with_bounds += bounded.work;
    without += unbounded.work;
  }
  EXPECT_LT(with_bounds, without);
}

TEST(ParallelSearch, AsPrintedTakesTheSquareOfLayersTimesTheSquareOfDevices) {
  std::mt19937_64 random(3);
  ParallelCosts costs = plain_costs(24, 16, random);
  costs.order = PipelineOrder::gpipe;
  StageTable table(costs);
  const SearchAnswer answer = search_as_printed(table, question_of(costs));
  ASSERT_TRUE(answer.best);
  EXPECT_FALSE(answer.proven);
  // A combination is a stage [first, last) on some of the devices, and a number of devices behind it. Behind
  // the last stage that number is 0.
  std::uint64_t combinations = 0;
  for (std::uint64_t first = 0; first < 24; ++first) {
    for (std::uint64_t last = first + 1; last <= 24; ++last) {
      for (std::uint64_t devices = 1; devices <= 16; ++devices) {
        const std::uint64_t left = 16 - devices;
        combinations += last == 24 ? 1 : left;  // at least one device behind, each number once
      }
    }
  }
  EXPECT_EQ(answer.work, combinations);
  EXPECT_LE(answer.work, 24U * 25 / 2 * (16U * 17 / 2));
}

TEST(ParallelSearch, AsPrintedMissesWhatNeedsFewerMicroBatchesInFlight) {
  std::mt19937_64 random(3);
  ParallelCosts costs = plain_costs(4, 2, random);
  // Two stages of two layers: 200 bytes and 60 for each layer and micro-batch in flight.
  costs.memory = 200 + 2 * 120;
  StageTable table(costs);
  const SearchAnswer exact = search_pipeline(table, question_of(costs));
  ASSERT_TRUE(exact.best);
  EXPECT_EQ(exact.best->stages.size(), 2U);
  ParallelCosts printed = costs;
  printed.order = PipelineOrder::gpipe;
  StageTable all_in_flight(printed);
  EXPECT_FALSE(search_as_printed(all_in_flight, question_of(printed)).best);
}

TEST(ParallelSearch, EndsAtItsLimitAndWhenItIsAsked) {
  std::mt19937_64 random(5);
  ParallelCosts costs = plain_costs(30, 24, random);
  costs.memory = 900;
  StageTable table(costs);
  SearchQuestion question = question_of(costs);
  const SearchAnswer whole = search_pipeline(table, question);
  ASSERT_TRUE(whole.best);
  ASSERT_TRUE(whole.proven);
  // Every limit of work gives the same answer twice, and a bound that holds.
  bool early_with_a_pipeline = false;
  for (question.most_work = whole.work / 16; question.most_work < whole.work;
       question.most_work += whole.work / 16) {
    StageTable again(costs), once_more(costs);
    const SearchAnswer early = search_pipeline(again, question);
    const SearchAnswer same = search_pipeline(once_more, question);
    EXPECT_FALSE(early.proven);
    EXPECT_FALSE(early.stopped);
    EXPECT_LE(early.bound, question.value(*whole.best) * (1 + equal));
    ASSERT_EQ(early.best.has_value(), same.best.has_value());
    EXPECT_EQ(early.work, same.work);
    if (!early.best) continue;
    early_with_a_pipeline = true;
    EXPECT_GE(question.value(*early.best), question.value(*whole.best) * (1 - equal));
    EXPECT_EQ(question.value(*early.best), question.value(*same.best));
  }
  EXPECT_TRUE(early_with_a_pipeline);
  question.most_work = whole.work * 2;
  std::uint64_t last = 0;
  question.keep_going = [&](std::uint64_t work) {
    EXPECT_GT(work, last);
    last = work;
    return false;
  };
  StageTable stopped(costs);
  const SearchAnswer answer = search_pipeline(stopped, question);
  EXPECT_TRUE(answer.stopped);
  EXPECT_FALSE(answer.proven);
}

TEST(ParallelSearch, ListsTheBestGridsInTheirOrder) {
  std::mt19937_64 random(9);
  const ParallelCosts costs = plain_costs(7, 6, random);
  StageTable table(costs);
  const SearchQuestion question = question_of(costs);
  const GridsAnswer all = search_grids(table, question, 100);
  const GridsAnswer few = search_grids(table, question, 4);
  // One grid for each product of parts and stages up to six.
  EXPECT_EQ(all.grids.size(), 6U + 3 + 2 + 1 + 1 + 1);
  ASSERT_EQ(few.grids.size(), 4U);
  for (std::size_t i = 0; i < all.grids.size(); ++i) {
    const Pipeline& grid = *all.grids[i].answer.best;
    EXPECT_EQ(static_cast<int>(grid.stages.size()), all.grids[i].stages);
    for (const PlacedStage& stage : grid.stages) EXPECT_EQ(stage.layout, all.grids[i].layout);
    if (i > 0) {
      EXPECT_GE(question.value(grid), question.value(*all.grids[i - 1].answer.best));
    }
    if (i < 4) {
      EXPECT_EQ(question.value(grid), question.value(*few.grids[i].answer.best));
    }
  }
}

TEST(ParallelSearch, NamesTheLeastMemoryThatWouldDo) {
  std::mt19937_64 random(13);
  int judged = 0;
  for (int chain = 0; chain < 400 && judged < 40; ++chain) {
    ParallelCosts costs = testing::random_chain(random);
    costs.memory = 1;
    for (const bool grids : {false, true}) {
      const auto least = least_memory(costs, grids);
      costs.memory = unlimited;
      ASSERT_EQ(least.has_value(), testing::best_by_trying(costs, grids).has_value());
      if (!least || least->bytes == 0) continue;
      ++judged;
      costs.memory = least->bytes;
      EXPECT_TRUE(testing::best_by_trying(costs, grids).has_value());
      costs.memory = least->bytes - 1;
      EXPECT_FALSE(testing::best_by_trying(costs, grids).has_value());
    }
  }
  EXPECT_GE(judged, 40);
}

}  // namespace
}  // namespace stowage
