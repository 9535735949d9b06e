#include "src/placement/nogoods.h"

#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

bool holds(const Nogood& nogood, const Skyline& skyline) {
  return std::all_of(nogood.begin(), nogood.end(), [&](const Bound& bound) {
    return !skyline.placed(bound.item) && skyline.least(bound.item) >= bound.least;
  });
}

bool any_holds(const std::vector<Nogood>& nogoods, const Skyline& skyline) {
  return std::any_of(nogoods.begin(), nogoods.end(), [&](const Nogood& n) { return holds(n, skyline); });
}

// Random walks forth and back, each state judged by looking at every nogood.
TEST(Nogoods, FindWhatHolds) {
  std::mt19937_64 random(37);
  int found = 0;
  for (int round = 0; round < 100; ++round) {
    const Instance instance = test::instance_of(test::cut_rectangle(random, 16, 10, 60));
    Skyline skyline(instance);
    skyline.set_deadline(instance.deadline(1000));
    Nogoods nogoods(instance.items.size());
    std::vector<Nogood> all;
    std::vector<Skyline::Mark> marks;
    Nogood why;
    for (int step = 0; step < 200; ++step) {
      if (!marks.empty() && random() % 2 == 0) {
        marks.resize(1 + random() % marks.size());
        skyline.undo(marks.back());
        marks.pop_back();
      } else {
        marks.push_back(skyline.mark());
        const int item = static_cast<int>(random() % 16);
        if (skyline.placed(item)) continue;
        if (random() % 2 == 0) {
          skyline.place(item);
        } else {
          skyline.raise(item, skyline.least(item) + static_cast<std::int64_t>(random() % 30));
        }
      }
      if (all.size() < 30 && random() % 4 == 0) {
        Nogood nogood;
        for (int item = 0; item < 16; ++item) {
          if (random() % 6 == 0) nogood.push_back({item, static_cast<std::int64_t>(random() % 60)});
        }
        if (nogood.empty()) continue;
        nogoods.add(nogood, skyline);
        all.push_back(nogood);
      }
      const bool expected = any_holds(all, skyline);
      ASSERT_EQ(nogoods.hold(skyline, why), expected) << "round " << round << ", step " << step;
      if (!expected) continue;
      EXPECT_TRUE(holds(why, skyline));
      ++found;
      while (any_holds(all, skyline) && !marks.empty()) {
        skyline.undo(marks.back());
        marks.pop_back();
      }
      if (any_holds(all, skyline)) break;  // as the search does, back to where none holds
    }
    EXPECT_EQ(nogoods.size(), all.size());
  }
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace stowage::placement
