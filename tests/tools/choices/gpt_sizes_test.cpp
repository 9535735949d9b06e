#include "tools/choices/model_spec.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stowage {
namespace {

TEST(GptSizes, AreThoseOfThePapers) {
  const auto& sizes = named_gpt_sizes();
  const auto expect = [&](std::string_view name, std::int64_t layers, std::int64_t width,
                          std::int64_t heads) {
    const auto found =
        std::find_if(sizes.begin(), sizes.end(), [&](const auto& s) { return s.name == name; });
    ASSERT_NE(found, sizes.end()) << name;
    EXPECT_EQ(found->layers, layers) << name;
    EXPECT_EQ(found->width, width) << name;
    EXPECT_EQ(found->heads, heads) << name;
  };
  expect("gpt2", 12, 768, 12);
  expect("gpt2-medium", 24, 1024, 16);
  expect("gpt2-large", 36, 1280, 20);
  expect("gpt2-xl", 48, 1600, 25);
  expect("1.3b", 24, 2048, 16);
  expect("2.7b", 32, 2560, 32);
  expect("6.7b", 32, 4096, 32);
  expect("13b", 40, 5120, 40);
  expect("30b", 48, 7168, 56);
  expect("66b", 64, 9216, 72);
  expect("175b", 96, 12288, 96);
  EXPECT_EQ(sizes.size(), 11U);
  for (const GptSize& size : sizes) EXPECT_EQ(size.width % size.heads, 0) << size.name;
}

TEST(GptSizes, TheLadderRisesAndHoldsEveryRung) {
  const std::vector<GptSize> ladder = gpt_ladder();
  const auto parameters = [](const GptSize& size) { return size.layers * 12 * size.width * size.width; };
  for (std::size_t i = 1; i < ladder.size(); ++i) {
    EXPECT_GT(parameters(ladder[i]), parameters(ladder[i - 1])) << i;
    EXPECT_GE(ladder[i].width, ladder[i - 1].width) << i;
    EXPECT_EQ(ladder[i].width % ladder[i].heads, 0) << i;
  }
  for (const GptSize& size : named_gpt_sizes()) {
    if (size.name.starts_with("gpt2")) continue;
    EXPECT_EQ(std::count_if(ladder.begin(), ladder.end(), [&](const auto& s) { return s.name == size.name; }),
              1)
        << size.name;
  }
  EXPECT_EQ(ladder.front().width, 768);
  EXPECT_EQ(ladder[1].layers, 13);
  EXPECT_EQ(ladder.back().layers, 96);
}

}  // namespace
}  // namespace stowage
