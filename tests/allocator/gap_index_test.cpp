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

TEST(GapIndex, JoinsWhatTouches) {
  GapIndex index(granule);
  EXPECT_TRUE(index.add({10, 60}).empty());
  EXPECT_TRUE(index.add({60, 190}).empty());
  EXPECT_EQ(index.add({190, 300}), (Interval{1, 3}));
  EXPECT_EQ(index.gaps(), (std::map<Bytes, Bytes>{{10, 300}}));
  EXPECT_EQ(index.add({0, 10}), (Interval{0, 1}));
  index.take({120, 130});
  EXPECT_EQ(index.gaps(), (std::map<Bytes, Bytes>{{0, 120}, {130, 300}}));
}

TEST(GapIndex, PrefersWhatTakesNoCleanGranule) {
  GapIndex index(granule);
  index.add({0, 1000});
  index.take({30, 40});    // fragments of 30 and of 60, the second beside clean granules
  index.take({430, 990});  // and of 30 and 10
  EXPECT_EQ(places(index, 30).front(), (Interval{0, 30}));
  EXPECT_EQ(places(index, 40).front(), (Interval{40, 80}));
  EXPECT_EQ(places(index, 130).front(), (Interval{300, 430}));  // the fragment of 30, and one granule
}

TEST(GapIndex, TouchesAsFewGranulesAsItTakes) {
  GapIndex index(granule);
  index.add({70, 1000});
  EXPECT_EQ(places(index, 200).front(), (Interval{100, 300}));  // not {70, 270}, in three granules
  EXPECT_EQ(places(index, 230).front(), (Interval{70, 300}));   // the fragment saves one
  index.take({500, 1000});
  index.take({70, 230});
  EXPECT_EQ(places(index, 190).front(), (Interval{300, 490}));
}

TEST(GapIndex, OffersTheTightestFirstWhereThatIsAsked) {
  GapIndex index(granule, Fit::tightest);
  index.add({0, 1000});
  index.take({250, 260});
  index.take({300, 310});
  index.take({420, 990});
  // Gaps of 250, 40, 110 and 10 bytes.
  EXPECT_EQ(places(index, 30), (std::vector<Interval>{{260, 290}, {310, 340}, {0, 30}}));
  EXPECT_EQ(places(index, 110), (std::vector<Interval>{{310, 420}, {0, 110}}));
  EXPECT_EQ(places(index, 30, 2).size(), 2U);
  index.add({250, 260});
  EXPECT_EQ(places(index, 200), (std::vector<Interval>{{0, 200}}));
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
