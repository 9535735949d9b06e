#include "samples/task/gpt_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Parameters that make every token as likely as any other.
ReadParameter zeros_of(const Options& options) {
  GraphBuilder builder;
  const Graph graph = builder.finish(options.family->build(builder, options.model).loss, AdamW{});
  return [graph](const std::string& name) {
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.name == name) return std::vector<std::byte>(tensor.bytes());
    }
    return std::vector<std::byte>{};
  };
}

Options gpt_options_for(const std::string& path) {
  Options options;
  options.data = path;
  options.model = {.layers = 1, .width = 8, .heads = 1, .sequence = 4, .batch = 3};
  return options;
}

// Five samples of the tail are evaluated, which has no letter but b.
Options evaluating(const TemporaryFolder& folder) {
  Options options = gpt_options_for(folder.make("text", std::string(89, 'a') + '\n' + std::string(30, 'b')));
  options.evaluate_every = 1;
  options.evaluation_share = 0.25;
  options.evaluation_samples = 5;
  return options;
}

TEST(GptTask, EvaluatesTheTailAndTrainsOnTheRest) {
  const TemporaryFolder folder;
  Options options = evaluating(folder);
  GptTask task(options);
  for (std::uint64_t step = 0; step < 50; ++step) {
    for (const auto& input : task.inputs(step)) {
      for (const std::int32_t token : input) EXPECT_TRUE(token == 'a' || token == '\n');
    }
  }
  const Evaluation evaluation = task.evaluate(zeros_of(options));
  ASSERT_EQ(evaluation.values.size(), 2U);
  EXPECT_EQ(evaluation.values[0].first, "loss");
  EXPECT_NEAR(evaluation.values[0].second, std::log(256), 1e-5);
  EXPECT_NEAR(evaluation.values[1].second, 256, 1e-3);
  // Five samples of four tokens, in passes of three samples.
  EXPECT_NE(evaluation.text.find("over 20 bytes"), std::string::npos) << evaluation.text;
}

// The last batch has fewer samples, and counts for as much as its targets.
TEST(GptTask, WeighsTheLossesOfADeviceByTargets) {
  const TemporaryFolder folder;
  Options options = evaluating(folder);
  GptTask task(options);
  const std::optional<EvaluationModel> model = task.evaluation_model();
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->graph.tensor(model->built.tokens.id).elements(), 12);
  EXPECT_EQ(task.evaluation_batches(), 2U);
  std::vector<std::ptrdiff_t> targets;
  const Evaluation evaluation =
      task.evaluate_by([&](const std::vector<std::span<const std::int32_t>>& inputs) {
        targets.push_back(std::count_if(inputs[1].begin(), inputs[1].end(), [](auto t) { return t >= 0; }));
        return targets.size() == 1 ? 1.0 : 6.0;
      });
  EXPECT_EQ(targets, (std::vector<std::ptrdiff_t>{12, 8}));
  EXPECT_DOUBLE_EQ(evaluation.loss, 3.0);
}

// A GPT has learned from texts without [CLS] and [SEP], and takes token types for tokens.
TEST(GptTask, ExportsATokenizerThatGivesTheTextAlone) {
  const TemporaryFolder folder;
  Options options = gpt_options_for(folder.make("text", std::string(100, 'a')));
  options.tokenizer = folder.make("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n##a\n");
  const auto files = GptTask(options).files();
  EXPECT_THAT(files.at("tokenizer.json"), Not(HasSubstr("TemplateProcessing")));
  EXPECT_THAT(files.at("tokenizer_config.json"), Not(HasSubstr("token_type_ids")));
}

TEST(GptTask, WithoutEvaluationAllIsTrainedOn) {
  const TemporaryFolder folder;
  Options options = gpt_options_for(folder.make("text", std::string(50, 'a') + std::string(50, 'b')));
  const auto all = GptTask(options).configuration();
  options.evaluate_every = 5;
  options.evaluation_data = options.data;
  EXPECT_EQ(GptTask(options).configuration(), all);
  options.evaluation_data = "";
  options.evaluation_share = 0.2;
  EXPECT_NE(GptTask(options).configuration(), all);
}

}  // namespace
}  // namespace stowage::samples
