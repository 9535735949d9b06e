#include "offload/plan/schedule/live_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace stowage {
namespace {

TEST(LiveBytes, AgreesWithAPlainArray) {
  std::mt19937_64 random(1);
  for (const Position positions : {1, 2, 7, 64, 100}) {
    std::vector<Bytes> plain(static_cast<std::size_t>(positions));
    for (Bytes& bytes : plain) bytes = random() % 100;
    LiveBytes live(plain);
    for (int i = 0; i < 200; ++i) {
      Position first = static_cast<Position>(random() % static_cast<std::uint64_t>(positions + 1));
      Position last = static_cast<Position>(random() % static_cast<std::uint64_t>(positions + 1));
      if (first > last) std::swap(first, last);
      const Bytes bytes = random() % 100;
      live.add(first, last, bytes);
      for (Position p = first; p < last; ++p) plain[static_cast<std::size_t>(p)] += bytes;
      EXPECT_EQ(live.most(), *std::max_element(plain.begin(), plain.end()));
      const Bytes limit = random() % (2 + live.most());
      Position expected = last - 1;
      while (expected >= first && plain[static_cast<std::size_t>(expected)] <= limit) --expected;
      EXPECT_EQ(live.last_above(first, last, limit), expected);
      for (Position p = 0; p < positions; ++p) EXPECT_EQ(live.at(p), plain[static_cast<std::size_t>(p)]);
    }
  }
}

}  // namespace
}  // namespace stowage
