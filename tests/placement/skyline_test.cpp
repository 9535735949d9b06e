#include "src/placement/skyline.h"

#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

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

TEST(Skyline, UndoingRestoresEverything) {
  std::mt19937_64 random(31);
  for (int round = 0; round < 200; ++round) {
    const Instance instance = test::instance_of(test::cut_rectangle(random, 20, 12, 100));
    Skyline skyline(instance);
    skyline.set_deadline(instance.deadline(150));
    skyline.unsettle_all();
    Nogood why;
    ASSERT_TRUE(skyline.settle(why));
    std::vector<std::pair<Skyline::Mark, View>> stack;
    for (int step = 0; step < 60; ++step) {
      if (!stack.empty() && random() % 3 == 0) {
        const std::size_t depth = random() % stack.size();
        skyline.undo(stack[depth].first);
        ASSERT_EQ(View(skyline, instance), stack[depth].second);
        stack.resize(depth, stack[0]);
      }
      stack.emplace_back(skyline.mark(), View(skyline, instance));
      const int item = static_cast<int>(random() % 20);
      if (skyline.placed(item)) continue;
      if (random() % 2 == 0) {
        skyline.raise(item, skyline.least(item) + 1 + static_cast<std::int64_t>(random() % 20));
      } else {
        skyline.place(item);
      }
      if (skyline.settle(why)) continue;
      skyline.undo(stack.back().first);
      ASSERT_EQ(View(skyline, instance), stack.back().second);
    }
  }
}

}  // namespace
}  // namespace stowage::placement
