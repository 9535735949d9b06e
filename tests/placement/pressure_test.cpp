#include "src/placement/pressure.h"

#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

using test::Items;

// By definition, position by position.
struct Slow {
  Bytes live = 0;
  Bytes slack = 0;
};
Slow at_position(const Items& items, Bytes alignment, std::int64_t position) {
  Slow slow;
  for (const PlacementItem& item : items) {
    if (position < item.first || item.last <= position) continue;
    const Bytes aligned = align_up(item.bytes, alignment);
    slow.live += aligned;
    slow.slack = std::max(slow.slack, aligned - item.bytes);
  }
  return slow;
}

TEST(Pressure, IsWhatItsDefinitionSays) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    const Items items = test::random_items(random, 1 + static_cast<int>(random() % 40), 500);
    const Bytes alignment = Bytes{1} << (random() % 8);
    const Pressure pressure(items, alignment);
    Bytes bound = 0;
    for (std::int64_t at = 0; at < 100; ++at) {
      const Slow slow = at_position(items, alignment, at);
      bound = std::max(bound, slow.live - slow.slack);
    }
    EXPECT_EQ(pressure.bound(), bound);
    for (const PlacementItem& item : items) {
      Bytes most = 0;
      for (std::int64_t at = item.first; at < item.last; ++at) {
        most = std::max(most, at_position(items, alignment, at).live);
      }
      EXPECT_EQ(pressure.most_within(item), most);
    }
  }
}

}  // namespace
}  // namespace stowage::placement
