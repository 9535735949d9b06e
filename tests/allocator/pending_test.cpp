#include "allocator/pending.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace stowage::caching {
namespace {

// No byte is said to be free that is not; and what was cut, or has passed, is.
TEST(Pending, ForgetsNothingTooEarly) {
  std::mt19937 random(1);
  LaneClock clocks[3];
  Pending pending;
  std::map<Bytes, Tags> naive;  // by byte
  std::uint64_t count = 0;
  for (int step = 0; step < 4000; ++step) {
    const Bytes begin = random() % 100;
    const Interval range{begin, begin + 1 + random() % 9};
    pending.cut(range);
    for (Bytes at = range.begin; at < range.end; ++at) naive.erase(at);
    if (random() % 3 != 0) {
      Tags tags;
      for (std::size_t k = 0; k <= random() % 2; ++k) join(tags, {&clocks[random() % 3], ++count});
      pending.add(range, tags);
      for (Bytes at = range.begin; at < range.end; ++at) naive[at] = tags;
    }
    if (random() % 8 == 0) {
      LaneClock& clock = clocks[random() % 3];
      clock.passed = std::max(clock.passed.load(), count - std::min<std::uint64_t>(count, random() % 40));
    }
    for (Bytes at = 0; at < 110; ++at) {
      const Tags said = pending.in({at, at + 1});
      for (const Tag& tag : naive[at]) {
        if (tag.passed()) continue;
        const auto same =
            std::find_if(said.begin(), said.end(), [&](const Tag& s) { return s.clock == tag.clock; });
        ASSERT_NE(same, said.end());
        ASSERT_GE(same->count, tag.count);
      }
      if (naive[at].empty()) {
        ASSERT_TRUE(said.empty());
      }
      ASSERT_EQ(pending.any_in({at, at + 1}), !said.empty());
    }
  }
}

}  // namespace
}  // namespace stowage::caching
