#include "src/placement/skyline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

using test::instance_of;
using test::Items;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// All that can be seen of a skyline.
struct View {
  explicit View(Skyline& skyline, const Instance& instance) {
    for (int i = 0; i < static_cast<int>(instance.items.size()); ++i) {
      least.push_back(skyline.placed(i) ? -1 : skyline.least(i));
      next.push_back(skyline.placed(i) ? -1 : skyline.next(i));
    }
    for (int s = 0; s < instance.sections; ++s) {
      const std::span<const int> items = skyline.open(s);
      open.emplace_back(items.begin(), items.end());
      std::sort(open.back().begin(), open.back().end());
      floors.push_back(skyline.empty(s) ? -1 : skyline.floor(s));
      slacks.push_back(skyline.empty(s) ? -1 : skyline.slack(s));
      joined.push_back(skyline.joined(s));
    }
  }
  bool operator==(const View&) const = default;

  std::vector<std::int64_t> least, next, floors, slacks;
  std::vector<std::vector<int>> open;
  std::vector<bool> joined;
};

class SkylineTest : public ::testing::Test {
 protected:
  void start(const Items& items, Bytes capacity) {
    instance_ = instance_of(items);
    skyline_.emplace(instance_);
    skyline_->set_deadline(instance_.deadline(capacity));
    skyline_->unsettle_all();
    ASSERT_TRUE(skyline_->settle(why_));
  }
  Instance instance_;
  std::optional<Skyline> skyline_;
  Nogood why_;
};

TEST_F(SkylineTest, PlacingRaisesWhatMeetsTheItem) {
  //        sections 0 1
  start({{0, 2, 2}, {0, 1, 3}, {1, 2, 4}}, 10);
  skyline_->place(1);
  ASSERT_TRUE(skyline_->settle(why_));
  EXPECT_EQ(skyline_->least(0), 3);
  EXPECT_EQ(skyline_->least(2), 0);
  EXPECT_EQ(skyline_->floor(0), 3);
  EXPECT_EQ(skyline_->floor(1), 0);
  EXPECT_EQ(skyline_->slack(0), 5);
  EXPECT_EQ(skyline_->slack(1), 4);
  EXPECT_THAT(skyline_->open(1), ElementsAre(2, 0));
  EXPECT_TRUE(skyline_->joined(1));
  skyline_->place(2);
  skyline_->place(0);
  EXPECT_EQ(skyline_->least(0), 4);
  EXPECT_TRUE(skyline_->empty(0));
  EXPECT_FALSE(skyline_->joined(1));
}

TEST_F(SkylineTest, AnItemThatGoesHigherRestsOnALowestTop) {
  start({{0, 2, 2}, {0, 1, 3}, {1, 2, 5}, {1, 2, 4}}, 12);
  EXPECT_EQ(skyline_->next(0), 3);
  EXPECT_EQ(skyline_->next(1), 2);
  EXPECT_EQ(skyline_->next(2), 2);
  skyline_->raise(2, 3);
  ASSERT_TRUE(skyline_->settle(why_));
  EXPECT_EQ(skyline_->next(2), 4);  // not lower than where it is
  skyline_->place(1);
  ASSERT_TRUE(skyline_->settle(why_));
  EXPECT_EQ(skyline_->next(0), 4);
  start({{0, 2, 2}}, 12);
  EXPECT_EQ(skyline_->next(0), nowhere);
}

TEST_F(SkylineTest, WastedUnitsCount) {
  start({{0, 2, 2}, {0, 1, 3}, {1, 2, 4}}, 8);
  skyline_->place(1);
  skyline_->raise(0, 6);
  skyline_->raise(2, 1);
  // In section 1 one unit is free below item 2 and one above it.
  ASSERT_TRUE(skyline_->settle(why_));
  EXPECT_EQ(skyline_->slack(1), 0);
  const Skyline::Mark mark = skyline_->mark();
  skyline_->raise(0, 7);
  ASSERT_FALSE(skyline_->settle(why_));
  ASSERT_EQ(why_.size(), 1U);
  EXPECT_EQ(why_[0].item, 0);
  EXPECT_EQ(why_[0].least, 7);
  skyline_->undo(mark);
  EXPECT_TRUE(skyline_->settle(why_));
}

TEST_F(SkylineTest, AReasonNamesOnlyWhatIsNeeded) {
  start({{0, 3, 1}, {0, 1, 4}, {0, 1, 4}, {1, 3, 2}}, 9);
  skyline_->raise(1, 3);
  skyline_->raise(2, 3);
  ASSERT_FALSE(skyline_->settle(why_));
  EXPECT_EQ(skyline_->conflict(), 0);
  std::vector<int> items;
  for (const Bound& bound : why_) {
    items.push_back(bound.item);
    EXPECT_EQ(bound.least, 2);  // from 2 on the two end at 10
  }
  EXPECT_THAT(items, UnorderedElementsAre(1, 2));
}

TEST_F(SkylineTest, OneOfTheLateMayEndLate) {
  // In units of 32 the deadline is 1; an item that leaves 6 bytes of its last unit free may end at 2.
  const Instance instance = instance_of({{0, 1, 32}, {0, 1, 26}}, 16);
  Skyline skyline(instance);
  skyline.set_deadline(instance.deadline(58));
  skyline.unsettle_all();
  ASSERT_TRUE(skyline.settle(why_));
  skyline.place(0);
  EXPECT_TRUE(skyline.settle(why_));
  skyline.undo({});
  skyline.unsettle_all();
  skyline.place(1);
  ASSERT_FALSE(skyline.settle(why_));
  ASSERT_EQ(why_.size(), 1U);
  EXPECT_EQ(why_[0].item, 0);
  EXPECT_EQ(why_[0].least, 1);
}

TEST_F(SkylineTest, UndoingRestoresEverything) {
  std::mt19937_64 random(31);
  for (int round = 0; round < 200; ++round) {
    start(test::cut_rectangle(random, 20, 12, 100), 150);
    std::vector<std::pair<Skyline::Mark, View>> stack;
    for (int step = 0; step < 60; ++step) {
      if (!stack.empty() && random() % 3 == 0) {
        const std::size_t depth = random() % stack.size();
        skyline_->undo(stack[depth].first);
        ASSERT_EQ(View(*skyline_, instance_), stack[depth].second);
        stack.resize(depth, stack[0]);
      }
      stack.emplace_back(skyline_->mark(), View(*skyline_, instance_));
      const int item = static_cast<int>(random() % 20);
      if (skyline_->placed(item)) continue;
      if (random() % 2 == 0) {
        skyline_->raise(item, skyline_->least(item) + 1 + static_cast<std::int64_t>(random() % 20));
      } else {
        skyline_->place(item);
      }
      if (skyline_->settle(why_)) continue;
      skyline_->undo(stack.back().first);
      ASSERT_EQ(View(*skyline_, instance_), stack.back().second);
    }
  }
}

}  // namespace
}  // namespace stowage::placement
