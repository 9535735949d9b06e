#include "samples/task/bert_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/error.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

std::string text_of(int documents) {
  std::string text;
  for (int i = 0; i < documents; ++i) text += "one " + std::to_string(i) + ". two. three. four.\n\n";
  return text;
}

Options options_for(const std::string& path) {
  Options options;
  options.program = Program::train_bert;
  options.family = &bert_family;
  options.data = path;
  options.model = {.layers = 1,
                   .width = 8,
                   .heads = 1,
                   .sequence = 16,
                   .batch = 3,
                   .pretraining = true,
                   .padding_at_end = true};
  options.learned_vocabulary = 270;
  return options;
}

double value_of(const Evaluation& evaluation, const std::string& name) {
  for (const auto& [key, value] : evaluation.values) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

TEST(BertTask, InputsAreThoseOfTheModel) {
  const TemporaryFolder folder;
  Options options = options_for(folder.make("text", text_of(20)));
  BertTask task(options);
  EXPECT_GT(options.model.vocabulary, 256);
  EXPECT_EQ(options.model.padded_vocabulary % 64, 0);
  GraphBuilder builder;
  const BuiltModel model = options.family->build(builder, options.model);
  const auto inputs = task.inputs(0);
  ASSERT_EQ(inputs.size(), model.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(std::ssize(inputs[i]), builder.tensor(model.inputs[i].value).elements());
    for (const std::int32_t value : inputs[i]) {
      EXPECT_GE(value, -1);
      EXPECT_LT(value, model.inputs[i].values);
    }
  }
  const auto files = task.files();
  EXPECT_THAT(files.at("tokenizer.json"), HasSubstr("TemplateProcessing"));
  EXPECT_THAT(files.at("tokenizer_config.json"), HasSubstr("token_type_ids"));
}

TEST(BertTask, AModelThatKnowsNothingHasTheLossesOfChance) {
  const TemporaryFolder folder;
  Options options = options_for(folder.make("text", text_of(40)));
  options.evaluate_every = 1;
  options.evaluation_share = 0.25;
  options.evaluation_samples = 100;
  BertTask task(options);
  GraphBuilder builder;
  const Graph graph = builder.finish(options.family->build(builder, options.model).loss, AdamW{});
  const ReadParameter zeros = [&](const std::string& name) {
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.name == name) return std::vector<std::byte>(tensor.bytes());
    }
    return std::vector<std::byte>{};
  };
  const Evaluation evaluation = task.evaluate(zeros);
  EXPECT_NEAR(value_of(evaluation, "masked_loss"), std::log(static_cast<double>(options.model.vocabulary)),
              1e-5);
  EXPECT_NEAR(value_of(evaluation, "next_sentence_loss"), std::log(2), 1e-6);
  // The first of equal logits is taken: "follows", which half of the pairs do.
  EXPECT_NEAR(value_of(evaluation, "next_sentence_accuracy"), 0.5, 0.2);
  EXPECT_THAT(evaluation.text, HasSubstr("right of 100 (by chance 50%)"));
}

TEST(BertTask, WhatIsHeldOutMustHavePairs) {
  const TemporaryFolder folder;
  Options options = options_for(folder.make("text", text_of(20)));
  options.evaluate_every = 1;
  options.evaluation_share = 0.01;
  try {
    const BertTask task(options);
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("--evaluation-share 0.01: what is held out of --data"));
  }
}

}  // namespace
}  // namespace stowage::samples
