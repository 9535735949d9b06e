#include "samples/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

Graph graph_of_one_parameter() {
  Graph graph;
  graph.tensors = {{"w", DataType::f32, {256}, TensorKind::parameter, {}}};
  return graph;
}

TEST(Checkpoints, WhatChangesTheBitsIsInTheConfiguration) {
  const std::map<std::string, std::string> task = {{"data.text", "one"}};
  const auto as_it_is = configuration_of({}, task);
  EXPECT_EQ(as_it_is.at("data.text"), "one");
  const auto changes = [&](auto change) {
    Options options;
    change(options);
    return configuration_of(options, task) != as_it_is;
  };
  EXPECT_NE(configuration_of({}, {{"data.text", "other"}}), as_it_is);
  EXPECT_TRUE(changes([](Options& options) { options.type = DataType::bf16; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.layers++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.width++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.heads++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.vocabulary++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.sequence++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.batch++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.micro_batches++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.dropout = 1e-300; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.attention_dropout = 0.5; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.residual_dropout = 0.5; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.embedding_dropout = 0.5; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.epsilon = 1e-6; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.padded_vocabulary = 320; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.head_tokens++; }));
  EXPECT_TRUE(changes([](Options& options) { options.steps++; }));
  EXPECT_TRUE(changes([](Options& options) { options.warmup++; }));
  EXPECT_TRUE(changes([](Options& options) { options.learning_rate = 0.0010000000000000002; }));
  EXPECT_TRUE(changes([](Options& options) { options.weight_decay = 0; }));
  EXPECT_TRUE(changes([](Options& options) { options.clip = 0; }));
  EXPECT_TRUE(changes([](Options& options) { options.seed++; }));
  // And what does not is not.
  EXPECT_FALSE(changes([](Options& options) {
    options.budget = {.device = 1, .host = 1};
    options.plan.bucket_bytes = 7;
    options.plan.policy = Policy::none;
    options.threads = 3;
    options.device = "cuda";
    options.checkpoint_every = 1;
  }));
}

TEST(Checkpoints, ThePlanGetsTheHostMemoryThatTheCopyLeaves) {
  Options options;
  options.checkpoint_folder = "somewhere";
  EXPECT_EQ(budget_beside_copy(options, graph_of_one_parameter()).host, unlimited);
  options.budget.host = 3000;
  EXPECT_EQ(budget_beside_copy(options, graph_of_one_parameter()).host, 1976U);
  options.checkpoint_blocking = true;
  EXPECT_EQ(budget_beside_copy(options, graph_of_one_parameter()).host, 3000U);
  options.checkpoint_blocking = false;
  options.budget.host = 1024;
  try {
    budget_beside_copy(options, graph_of_one_parameter());
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("--host-memory 1.00 KiB: the copy"));
  }
}

}  // namespace
}  // namespace stowage::samples
