#include "stowage/tree_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>

namespace stowage {
namespace {

// The sum of values named by their micro-batch, in brackets.
struct Written {
  std::string sum;
  std::size_t most_kept = 0;
};
Written written(std::uint32_t micro_batches, std::uint32_t groups) {
  TreeSum<std::string> tree(micro_batches, groups);
  Written result;
  for (std::uint32_t i = 0; i < micro_batches; ++i) {
    EXPECT_FALSE(tree.total()) << i;
    tree.add(
        std::to_string(i), [](const std::string& sum, const std::string& more) { return sum + more; },
        [](const std::string& left, const std::string& right) { return "(" + left + "+" + right + ")"; });
    result.most_kept = std::max(result.most_kept, tree.kept());
  }
  result.sum = tree.total().value_or("");
  return result;
}

TEST(TreeSum, AddsGroupsInATreeOfAdjacentPairs) {
  EXPECT_EQ(written(1, 1).sum, "0");
  EXPECT_EQ(written(3, 1).sum, "012");
  EXPECT_EQ(written(2, 2).sum, "(0+1)");
  EXPECT_EQ(written(6, 2).sum, "(012+345)");
  EXPECT_EQ(written(4, 4).sum, "((0+1)+(2+3))");
  EXPECT_EQ(written(8, 4).sum, "((01+23)+(45+67))");
  EXPECT_EQ(written(8, 8).sum, "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST(TreeSum, KeepsNoMoreSumsThanTheTreeIsDeep) {
  for (const std::uint32_t groups : {1U, 2U, 4U, 8U, 64U}) {
    const auto depth = static_cast<std::size_t>(std::bit_width(groups) - 1);
    EXPECT_LE(written(groups, groups).most_kept, std::max<std::size_t>(depth, 1)) << groups;
    EXPECT_EQ(written(2 * groups, groups).most_kept, depth + 1) << groups;
  }
}

// Terms whose sum shows in which order they were added.
TEST(TreeSum, DevicesThatShareTheBatchHaveTheBitsOfOne) {
  constexpr std::uint32_t parts = 16, groups = 8;
  const auto term = [](std::uint32_t i) { return 1.0F / (1.0F + static_cast<float>(i * i)); };
  const auto add = [](float a, float b) { return a + b; };
  TreeSum<float> one(parts, groups), plain(parts, 1);
  for (std::uint32_t i = 0; i < parts; ++i) {
    one.add(term(i), add);
    plain.add(term(i), add);
  }
  EXPECT_NE(one.total(), plain.total());
  for (const std::uint32_t ranks : {2U, 4U, 8U}) {
    TreeSum<float> all(ranks, ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      TreeSum<float> share(parts / ranks, groups / ranks);
      for (std::uint32_t i = 0; i < parts / ranks; ++i) share.add(term(rank * parts / ranks + i), add);
      all.add(*share.total(), add);
    }
    EXPECT_EQ(all.total(), one.total()) << ranks;
  }
}

}  // namespace
}  // namespace stowage
