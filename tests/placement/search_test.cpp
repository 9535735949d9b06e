#include "src/placement/search.h"

#include <gtest/gtest.h>

#include "tests/placement/instances.h"
#include "tests/support/printed_name.h"

namespace stowage::placement {

static void PrintTo(const Strategy& strategy, std::ostream* out) {
  constexpr const char* sections[]{"conflicts", "all three", "candidates", "slack"};
  *out << sections[static_cast<std::size_t>(strategy.section)];
}

namespace {

using test::Items;

constexpr std::uint64_t many = 1'000'000;
const std::function<bool()> on = [] { return true; };

// Small, connected, and with few lengths and sizes, so that much is alike.
Items small_items(std::mt19937_64& random) {
  Items items{{0, 6, 1 + random() % 3}};
  for (std::uint64_t i = 2 + random() % 5; i > 0; --i) {
    const auto first = static_cast<std::int64_t>(random() % 6);
    const auto length = static_cast<std::int64_t>(1 + random() % static_cast<std::uint64_t>(6 - first));
    items.push_back({first, first + length, 1 + random() % 6});
  }
  return items;
}

void expect_placed(const Items& items, const Instance& instance, const Search& search, Bytes capacity) {
  PlacementResult result;
  result.offsets.resize(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    result.offsets[instance.indices[i]] = static_cast<Bytes>(search.offsets()[i]) * instance.unit;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_LE(result.offsets[i] + items[i].bytes, capacity);
  }
  EXPECT_FALSE(test::overlap(items, result.offsets));
}

class SearchTest : public ::testing::TestWithParam<Strategy> {};

TEST_P(SearchTest, FindsAPlacementExactlyWhereThereIsOne) {
  std::mt19937_64 random(41);
  for (int round = 0; round < 250; ++round) {
    const Items items = small_items(random);
    const Bytes best = test::exhaustive_peak(items);
    const Instance instance = test::instance_of(items);
    for (Bytes capacity = best < 2 ? 1 : best - 2; capacity <= best + 1; ++capacity) {
      Search search(instance);
      search.set_capacity(capacity);
      const Outcome outcome = search.run(GetParam(), many, on);
      ASSERT_EQ(outcome, capacity < best ? Outcome::impossible : Outcome::placed) << "round " << round;
      if (outcome == Outcome::placed) expect_placed(items, instance, search, capacity);
    }
  }
}

// What descents that were cut short have learned never changes an answer, under falling capacities too.
TEST_P(SearchTest, WhatItLearnsIsTrue) {
  std::mt19937_64 random(43);
  int cut_short = 0;
  for (int round = 0; round < 150; ++round) {
    const Items items = small_items(random);
    const Bytes best = test::exhaustive_peak(items);
    const Instance instance = test::instance_of(items);
    Search search(instance);
    Strategy strategy = GetParam();
    strategy.noise = 0.5;
    for (Bytes capacity = best + 2; capacity + 2 > best && capacity > 0; --capacity) {
      search.set_capacity(capacity);
      Outcome outcome = Outcome::stopped;
      for (std::uint64_t nodes = 1; outcome == Outcome::stopped; ++nodes) {
        outcome = search.run(strategy, nodes, on);
        cut_short += outcome == Outcome::stopped ? 1 : 0;
      }
      ASSERT_EQ(outcome, capacity < best ? Outcome::impossible : Outcome::placed) << "round " << round;
      if (outcome == Outcome::placed) expect_placed(items, instance, search, capacity);
    }
    search.set_capacity(best);  // a larger one again
    ASSERT_EQ(search.run(GetParam(), many, on), Outcome::placed);
  }
  EXPECT_GT(cut_short, 1000);
}

TEST_P(SearchTest, FillsACutRectangle) {
  std::mt19937_64 random(47);
  for (int round = 0; round < 8; ++round) {
    const Items items = test::cut_rectangle(random, 60, 50, 400);
    const Instance instance = test::instance_of(items);
    Search search(instance);
    search.set_capacity(400);
    Outcome outcome = Outcome::stopped;
    for (int descent = 0; descent < 100 && outcome == Outcome::stopped; ++descent) {
      outcome = search.run({GetParam().section, GetParam().item, descent == 0 ? 0 : 0.3}, 2000, on);
    }
    ASSERT_EQ(outcome, Outcome::placed) << "round " << round;
    expect_placed(items, instance, search, 400);
  }
}

TEST_P(SearchTest, IsDeterministic) {
  std::mt19937_64 random(53);
  const Items items = test::cut_rectangle(random, 120, 80, 1000);
  const Instance instance = test::instance_of(items);
  std::vector<std::int64_t> offsets[2];
  std::uint64_t asked[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    Search search(instance);
    search.set_capacity(1100);
    const std::function<bool()> count = [&] { return ++asked[i] > 0; };
    Strategy strategy = GetParam();
    strategy.noise = 0.3;
    for (int descent = 0; descent < 30; ++descent) {
      if (search.run(strategy, 500, count) == Outcome::placed) break;
    }
    offsets[i] = search.offsets();
  }
  EXPECT_EQ(offsets[0], offsets[1]);
  EXPECT_EQ(asked[0], asked[1]);
}

INSTANTIATE_TEST_SUITE_P(Strategies, SearchTest,
                         ::testing::Values(Strategy{SectionRule::conflicts, ItemRule::area, 0},
                                           Strategy{SectionRule::all_three, ItemRule::width, 0},
                                           Strategy{SectionRule::candidates, ItemRule::area, 0},
                                           Strategy{SectionRule::slack, ItemRule::width, 0}),
                         stowage::test::printed_name);

TEST(Search, StopsWhereItIsTold) {
  std::mt19937_64 random(59);
  const Instance instance = test::instance_of(test::cut_rectangle(random, 100, 60, 500));
  Search search(instance);
  search.set_capacity(500);
  EXPECT_EQ(search.run({}, 0, on), Outcome::stopped);
  EXPECT_EQ(search.run({}, 50, on), Outcome::stopped);
  int asked = 0;
  EXPECT_EQ(search.run({}, many, [&] { return ++asked < 30; }), Outcome::stopped);
  EXPECT_EQ(asked, 30);
}

// Near inputs that need more than their bound, so that there is something to search and to refute.
TEST_P(SearchTest, RefutesWhatOnlyASearchCan) {
  std::mt19937_64 random(61);
  int refuted = 0;
  for (const Items& input : test::inputs_above_their_bound()) {
    for (int round = 0; round < 60; ++round) {
      Items items = input;
      for (int change = round == 0 ? 0 : 1; change > 0; --change) {
        items[random() % items.size()].bytes += random() % 2;
        items[random() % items.size()].last += static_cast<std::int64_t>(random() % 2);
      }
      const Bytes bound = peak_live_bytes(items);
      const bool fits = test::exhaustive_fit(items, bound);
      refuted += fits ? 0 : 1;
      for (const Instance& instance : split(items, 1)) {
        Search search(instance);
        search.set_capacity(bound);
        const Outcome outcome = search.run(GetParam(), many, on);
        if (fits) {
          ASSERT_EQ(outcome, Outcome::placed);
        }
        if (instance.items.size() == items.size()) {
          ASSERT_EQ(outcome, fits ? Outcome::placed : Outcome::impossible) << "round " << round;
        }
      }
    }
  }
  EXPECT_GT(refuted, 30);
}

// The long item alone connects the ranges: once it stands each must be refuted or placed by itself.
TEST(Search, RangesThatFallApartAreSolvedApart) {
  Items items{{0, 100, 1}};
  for (const std::int64_t shift : {0, 10, 20, 30}) {
    for (const PlacementItem& item : test::inputs_above_their_bound()[0]) {
      items.push_back({item.first + shift, item.last + shift, item.bytes});
    }
  }
  const Instance instance = test::instance_of(items);
  Search search(instance);
  search.set_capacity(9);
  EXPECT_EQ(search.run({}, many, on), Outcome::impossible);
  search.set_capacity(10);
  ASSERT_EQ(search.run({}, many, on), Outcome::placed);
  expect_placed(items, instance, search, 10);
}

}  // namespace
}  // namespace stowage::placement
