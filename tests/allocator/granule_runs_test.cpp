#include "allocator/granule_runs.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace stowage::caching {
namespace {

TEST(GranuleRuns, KeepsRunsApart) {
  GranuleRuns runs;
  runs.add({5, 7});
  runs.add({8, 9});
  runs.add({7, 8});
  runs.add({3, 3});
  EXPECT_EQ(runs.runs(), (std::map<std::uint64_t, std::uint64_t>{{5, 9}}));
  EXPECT_EQ(runs.remove({6, 7}), 1u);
  EXPECT_EQ(runs.runs(), (std::map<std::uint64_t, std::uint64_t>{{5, 6}, {7, 9}}));
  EXPECT_EQ(runs.count(), 3u);
}

TEST(GranuleRuns, DoesAsASetDoes) {
  std::mt19937 random(1);
  GranuleRuns runs;
  std::set<std::uint64_t> naive;
  for (int step = 0; step < 5000; ++step) {
    const std::uint64_t begin = random() % 60;
    const Interval range{begin, begin + random() % 8};
    std::set<std::uint64_t> missing, said;
    for (std::uint64_t g = range.begin; g < range.end; ++g)
      if (!naive.contains(g)) missing.insert(g);
    std::vector<Interval> gaps;
    runs.for_each_missing(range, [&](Interval gap) { gaps.push_back(gap); });
    for (const Interval& gap : gaps)
      for (std::uint64_t g = gap.begin; g < gap.end; ++g) said.insert(g);
    ASSERT_EQ(said, missing);
    ASSERT_EQ(runs.count_in(range), range.length() - missing.size());
    if (random() % 2 == 0) {
      for (const Interval& gap : gaps) runs.add(gap);
      naive.insert(missing.begin(), missing.end());
    } else {
      ASSERT_EQ(runs.remove(range), range.length() - missing.size());
      for (std::uint64_t g = range.begin; g < range.end; ++g) naive.erase(g);
    }
    ASSERT_EQ(runs.count(), naive.size());
    for (auto at = runs.runs().begin(), next = at; at != runs.runs().end(); at = next) {
      ++next;
      ASSERT_LT(at->first, at->second);
      if (next != runs.runs().end()) {
        ASSERT_LT(at->second, next->first);
      }
    }
  }
}

}  // namespace
}  // namespace stowage::caching
