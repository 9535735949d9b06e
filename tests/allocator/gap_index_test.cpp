#include "allocator/gap_index.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

#include "tests/support/draws.h"

namespace stowage::caching {
namespace {

constexpr Bytes granule = 100;

// The obvious way: one flag for each byte.
class NaiveSpace {
 public:
  explicit NaiveSpace(Bytes bytes) : free_(bytes, false) {}
  void set(Interval range, bool free) {
    for (Bytes at = range.begin; at < range.end; ++at) free_[at] = free;
  }
  bool is_free(Interval range) const {
    for (Bytes at = range.begin; at < range.end; ++at)
      if (!free_[at]) return false;
    return true;
  }
  bool is_clean(std::uint64_t number) const { return is_free({number * granule, (number + 1) * granule}); }
  std::uint64_t cost(Interval place) const {
    std::uint64_t count = 0;
    for (std::uint64_t g = place.begin / granule; g * granule < place.end; ++g)
      count += is_clean(g) ? 1u : 0u;
    return count;
  }
  // The fewest clean granules of any place of so many bytes.
  std::optional<std::uint64_t> cheapest(Bytes bytes) const {
    std::optional<std::uint64_t> best;
    for (Bytes at = 0; at + bytes <= free_.size(); ++at)
      if (is_free({at, at + bytes})) best = std::min(best.value_or(~0ull), cost({at, at + bytes}));
    return best;
  }

 private:
  std::vector<bool> free_;
};

std::vector<Interval> places(const GapIndex& index, Bytes bytes, std::size_t breadth = ~std::size_t{0}) {
  std::vector<Interval> found;
  index.for_each_place(bytes, breadth, [&](Interval place) {
    found.push_back(place);
    return false;
  });
  return found;
}

TEST(GapIndex, OffersTheCheapestOfAllPlaces) {
  std::mt19937 random(1);
  constexpr Bytes bytes = 2000;
  for (int round = 0; round < testing::draws(30, 5); ++round) {
    GapIndex index(granule);
    NaiveSpace naive(bytes);
    index.add({0, bytes});
    naive.set({0, bytes}, true);
    std::vector<Interval> live;
    for (int step = 0; step < 60; ++step) {
      const Bytes size = 1 + random() % (random() % 2 == 0 ? 60 : 450);
      const auto found = places(index, size);
      const auto best = naive.cheapest(size);
      ASSERT_EQ(found.empty(), !best.has_value());
      std::uint64_t offered = ~0ull, before = 0;
      for (const Interval& place : found) {
        ASSERT_TRUE(naive.is_free(place));
        ASSERT_EQ(place.length(), size);
        ASSERT_EQ(index.clean_granules(place).length(), naive.cost(place));
        offered = std::min(offered, naive.cost(place));
        ASSERT_LE(before, naive.cost(place) + 1);  // in the order of cost, but for the last kind
        before = naive.cost(place);
      }
      if (best) {
        ASSERT_EQ(offered, *best) << "of " << size;
        index.take(found[0]);
        naive.set(found[0], false);
        live.push_back(found[0]);
      }
      while (!live.empty() && (random() % 3 == 0 || !best)) {
        std::swap(live[random() % live.size()], live.back());
        std::vector<bool> clean;
        for (std::uint64_t g = 0; g < bytes / granule; ++g) clean.push_back(naive.is_clean(g));
        naive.set(live.back(), true);
        const Interval fresh = index.add(live.back());
        for (std::uint64_t g = 0; g < bytes / granule; ++g)
          ASSERT_EQ(g >= fresh.begin && g < fresh.end, naive.is_clean(g) && !clean[g]) << "granule " << g;
        live.pop_back();
        if (best) break;
      }
    }
  }
}

}  // namespace
}  // namespace stowage::caching
