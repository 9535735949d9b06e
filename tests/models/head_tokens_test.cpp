#include <gtest/gtest.h>

#include "stowage/error.h"
#include "stowage/models.h"

namespace stowage {
namespace {

TEST(HeadTokens, AreTheMostWhereTheWidthAndTheBatchAreLarge) {
  EXPECT_EQ(default_head_tokens(DataType::bf16, 768, 65536), 8192) << "GPT-2 124M on a card";
  EXPECT_EQ(default_head_tokens(DataType::bf16, 1600, 65536), 8192);
  EXPECT_EQ(default_head_tokens(DataType::bf16, 1 << 20, std::int64_t{1} << 40), 8192);
}

// The logits of a chunk are at most a quarter of all of them, or 2,048 tokens.
TEST(HeadTokens, GrowWithTheBatch) {
  EXPECT_EQ(default_head_tokens(DataType::bf16, 768, 1), 2048);
  EXPECT_EQ(default_head_tokens(DataType::bf16, 768, 16383), 2048);
  EXPECT_EQ(default_head_tokens(DataType::bf16, 768, 16384), 4096);
  EXPECT_EQ(default_head_tokens(DataType::bf16, 768, 32767), 4096);
  EXPECT_EQ(default_head_tokens(DataType::bf16, 768, 32768), 8192);
}

TEST(HeadTokens, GrowWithTheWidthAndShrinkWithTheType) {
  constexpr std::int64_t many = 1 << 20;
  EXPECT_EQ(default_head_tokens(DataType::bf16, 256, many), 2048);
  EXPECT_EQ(default_head_tokens(DataType::bf16, 257, many), 4096);
  EXPECT_EQ(default_head_tokens(DataType::bf16, 513, many), 8192);
  EXPECT_EQ(default_head_tokens(DataType::f32, 512, many), 2048);
  EXPECT_EQ(default_head_tokens(DataType::f32, 768, many), 4096);
  EXPECT_EQ(default_head_tokens(DataType::f64, 1024, many), 2048);
}

class HeadTokensOf : public testing::TestWithParam<const ModelFamily*> {
 protected:
  static std::int64_t chunk_of(const ModelConfig& config, DataType type) {
    GraphBuilder builder(type);
    const Graph graph = builder.finish(GetParam()->build(builder, config).loss, AdamW{});
    for (const Op& op : graph.ops)
      if (op.kernel == "linear_cross_entropy") return std::get<std::int64_t>(op.attributes.at("chunk"));
    return 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, HeadTokensOf, testing::ValuesIn(model_families()),
                         [](const auto& family) { return std::string(family.param->name); });

// A micro-batch's tokens count, and what a config says goes first.
TEST_P(HeadTokensOf, AreAnAttributeOfTheGraph) {
  ModelConfig config;
  config.layers = 1;
  config.width = 768;
  config.heads = 12;
  config.vocabulary = 64;
  config.sequence = 1024;
  config.batch = 64;
  EXPECT_EQ(chunk_of(config, DataType::bf16), 8192);
  EXPECT_EQ(head_tokens(config, DataType::bf16), 8192);
  config.micro_batches = 4;
  EXPECT_EQ(chunk_of(config, DataType::bf16), 4096);
  EXPECT_EQ(head_tokens(config, DataType::bf16), 4096);
  config.head_tokens = 100;
  EXPECT_EQ(chunk_of(config, DataType::bf16), 100);
  EXPECT_EQ(head_tokens(config, DataType::bf16), 100);
  config.head_tokens = 0;
  EXPECT_EQ(chunk_of(config, DataType::bf16), 0) << "all logits at once, as a tensor";
  config.head_tokens = -1;
  EXPECT_THROW(chunk_of(config, DataType::bf16), InvalidInput);
}

}  // namespace
}  // namespace stowage
