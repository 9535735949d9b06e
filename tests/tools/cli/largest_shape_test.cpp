#include "tools/cli/largest_shape.h"

#include <gtest/gtest.h>

#include "tests/tools/cli/questions.h"

namespace stowage {
namespace {

// A Llama of one layer. Planned in an instant: with everything on the device there is nothing to choose.
PlanQuestion tiny_llama(std::int64_t batch, std::int64_t sequence) {
  PlanQuestion question;
  question.options.policy = Policy::none;
  ModelConfig config = llama_family.defaults;
  config.layers = 1;
  config.width = 32;
  config.heads = 2;
  config.key_heads = 1;
  config.head_width = 16;
  config.inner = 64;
  config.vocabulary = 96;
  config.batch = batch;
  config.sequence = sequence;
  question.model = ModelSpec{.family = &llama_family, .config = config};
  question.take(build(*question.model));
  return question;
}

Bytes need_of(std::int64_t batch, std::int64_t sequence) {
  return need_bytes(tiny_llama(batch, sequence).graph, Machine{});
}

LargestShape largest_in(Bytes device, std::int64_t sequence) {
  PlanQuestion question = tiny_llama(1, sequence);
  question.budget.device = device;
  return largest_shape(question, false, test::silent);
}

TEST(LargestShape, IsTheLastThatFitsToTheByte) {
  EXPECT_EQ(largest_in(need_of(4, 2048), 2048).batch, 4);
  EXPECT_EQ(largest_in(need_of(4, 2048) - 1, 2048).batch, 2);
  for (const std::int64_t tokens : {1024, 2048, 3072, 7168}) {
    EXPECT_EQ(largest_in(need_of(1, tokens), 2048).most_tokens, tokens);
    EXPECT_EQ(largest_in(need_of(1, tokens) - 1, 2048).most_tokens, tokens - 1024);
  }
  const LargestShape none = largest_in(need_of(1, 1024) - 1, 2048);
  EXPECT_EQ(none.batch, 0);
  EXPECT_EQ(none.most_tokens, 0);
  EXPECT_EQ(describe(none), "\nlargest       no batch at 2,048 tokens; not even 1,024 tokens at batch 1\n");
}

TEST(LargestShape, HasASampleInEachMicroBatch) {
  PlanQuestion question = tiny_llama(2, 1024);
  question.model->config.micro_batches = 2;
  question.take(build(*question.model));
  question.budget.device = need_bytes(question.graph, Machine{});
  const LargestShape shape = largest_shape(question, false, test::silent);
  EXPECT_EQ(shape.batch, 2);
  EXPECT_EQ(shape.least_batch, 2);
  EXPECT_EQ(shape.most_tokens, 1024);
  EXPECT_EQ(describe(shape), "\nlargest       batch 2 at 1,024 tokens; 1,024 tokens at batch 2\n");
  EXPECT_EQ(to_json(shape).dump(), R"({"batch":2,"sequence":1024,"most_tokens":1024,"least_batch":2})");
}

// A model with a table of positions has no more of them than these.
TEST(LargestShape, AsksOfATableOfPositionsForSamplesAlone) {
  PlanQuestion question = test::model_question();
  question.options.policy = Policy::none;
  question.budget.device = need_bytes(question.graph, Machine{});
  const LargestShape shape = largest_shape(question, false, test::silent);
  EXPECT_EQ(shape.batch, 2);
  EXPECT_EQ(describe(shape), "\nlargest       batch 2 at 16 tokens\n");
  EXPECT_EQ(to_json(shape).dump(), R"({"batch":2,"sequence":16})");
}

// The answer to the question itself stands, whose search is longer; and the end of the search is no largest.
TEST(LargestShape, IsNoLessThanTheAnswer) {
  PlanQuestion question = tiny_llama(3, 2048);
  question.budget.device = need_of(1, 1024);
  EXPECT_EQ(largest_shape(question, false, test::silent).batch, 0);
  const LargestShape some = largest_shape(question, true, test::silent);
  EXPECT_EQ(some.batch, 3);
  EXPECT_EQ(some.most_tokens, 1024);
  question = tiny_llama(1, 3000);
  question.budget.device = need_of(1, 1024);
  EXPECT_EQ(largest_shape(question, true, test::silent).most_tokens, 2048);
  EXPECT_EQ(describe(LargestShape{.batch = 4096, .sequence = 1024, .most_tokens = most_tokens_of_sample}),
            "\nlargest       at least batch 4,096 at 1,024 tokens; at least 1,048,576 tokens at batch 1\n");
}

}  // namespace
}  // namespace stowage
