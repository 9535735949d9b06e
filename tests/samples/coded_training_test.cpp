// --code-activations from end to end: the same bits in any memory, resumed runs, what is told, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "stowage/checkpoint.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

struct Program {
  const char* path;
  const char* codes;
};

class CodedTraining : public ::testing::TestWithParam<Program> {
 protected:
  Words with(const std::string& codes, const Words& more) const {
    Words words = {"--data",  text_,  "--device",   "simulated", "--machine",        machine_,
                   "--type",  "bf16", "--layers",   "2",         "--width",          "64",
                   "--heads", "2",    "--sequence", "64",        "--batch",          "8",
                   "--steps", "4",    "--warmup",   "2",         "--link-bandwidth", "unthrottled"};
    if (!codes.empty()) words.insert(words.end(), {"--code-activations", codes});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run(const std::string& codes, const Words& more) const {
    return run_program(GetParam().path, with(codes, more));
  }
  std::string weights_after(const std::string& codes, Words more) const {
    more.insert(more.end(), {"--weights", folder_.file("weights")});
    well(run(codes, more));
    return contents_of(folder_.file("weights"));
  }
  // The smallest --device-memory.
  std::string minimum() const {
    const std::string told = well(run(GetParam().codes, {"--plan-only"})).output;
    const std::size_t at = told.find('(', told.find("\nminimum"));
    return told.substr(at + 1, told.find(' ', at) - at - 1);
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", documents() + documents() + documents());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

INSTANTIATE_TEST_SUITE_P(All, CodedTraining,
                         ::testing::Values(Program{STOWAGE_TRAIN_GPT, "4"}, Program{STOWAGE_TRAIN_BERT, "8"}),
                         [](const auto& of) { return std::string("bits_") + of.param.codes; });

TEST_P(CodedTraining, LeavesTheSameBitsInAnyMemory) {
  const std::string whole = weights_after(GetParam().codes, {"--policy", "none"});
  ASSERT_FALSE(whole.empty());
  EXPECT_TRUE(weights_after(GetParam().codes, {"--device-memory", minimum(), "--verify"}) == whole);
  EXPECT_TRUE(weights_after(GetParam().codes, {"--policy", "zero-offload", "--threads", "1"}) == whole);
  EXPECT_FALSE(weights_after("off", {}) == whole);
  EXPECT_TRUE(weights_after("off", {}) == weights_after("", {}));
}

TEST_P(CodedTraining, ResumesToTheSameBitsAndWithNoOtherCodes) {
  const std::string dir = folder_.file("checkpoints");
  const std::string whole =
      weights_after(GetParam().codes, {"--checkpoint", dir, "--checkpoint-every", "2", "--keep", "9"});
  const auto checkpoints = list_checkpoints(dir);
  ASSERT_GE(checkpoints.size(), 2U);
  const std::string path = checkpoints.back().path;
  EXPECT_TRUE(weights_after(GetParam().codes, {"--resume", path, "--device-memory", minimum()}) == whole);
  for (const char* other : {"off", "8", "4"})
    if (other != std::string(GetParam().codes))
      expect_refusal(run(other, {"--resume", path}), {"model.code_activations", GetParam().codes});
}

// A checkpoint of a run without codes says nothing of them, as those from before there were any.
TEST_P(CodedTraining, DoesNotGoOnFromExactActivations) {
  const std::string dir = folder_.file("checkpoints");
  well(run("", {"--checkpoint", dir}));
  const std::string path = list_checkpoints(dir).front().path;
  EXPECT_THAT(contents_of(path + "/state.json"), Not(HasSubstr("code_activations")));
  expect_refusal(run(GetParam().codes, {"--resume", path, "--steps", "6"}),
                 {"model.code_activations", "off"});
}

// Before the first step, and with each evaluation.
TEST_P(CodedTraining, TellsTheNoiseOfEachTensor) {
  const std::string log = folder_.file("log"), page = folder_.file("page.html");
  const std::string told =
      well(run(GetParam().codes, {"--log", log, "--report", page, "--evaluate-every", "2",
                                  "--evaluation-samples", "2", "--evaluation-share", "0.3"}))
          .output;
  EXPECT_THAT(told, HasSubstr("\ncodes "));
  EXPECT_THAT(told, HasSubstr(" dB, least "));
  std::vector<std::uint64_t> steps;
  const std::string text = contents_of(log);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
    begin = end + 1;
    if (!line.contains("codes")) continue;
    steps.push_back(line.at("step"));
    EXPECT_EQ(line.at("codes").size(), 4U) << line;
    for (const auto& [name, noise] : line.at("codes").items()) {
      const double decibels = noise.at("decibels"), few = GetParam().codes == std::string("4") ? 15 : 38;
      EXPECT_GT(decibels, few) << name;
      EXPECT_LT(decibels, few + 12) << name;
      EXPECT_GT(noise.at("largest_error").get<double>(), 0) << name;
    }
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(0, 2, 4));
  EXPECT_THAT(contents_of(page), HasSubstr("Coded activations, behind step 4"));
}

// The sizes are those of the files, and the codes those of the command line.
TEST_P(CodedTraining, StartsFromAModelsFilesWithCodes) {
  const std::string model = folder_.file("model");
  well(run("off", {"--export", model}));
  Words words = {
      "--data",        text_,     "--device", "simulated",  "--machine", machine_,      "--init",
      model,           "--batch", "8",        "--sequence", "64",        "--plan-only", "--code-activations",
      GetParam().codes};
  if (GetParam().path == std::string(STOWAGE_TRAIN_BERT)) words.insert(words.end(), {"--tokenizer", model});
  EXPECT_THAT(well(run_program(GetParam().path, words)).output,
              HasSubstr(std::string("large activations in ") + GetParam().codes + " bits"));
}

TEST(CodedActivationsOption, OfOtherBitsIsRefused) {
  for (const char* program : {STOWAGE_TRAIN_GPT, STOWAGE_TRAIN_BERT})
    for (const char* codes : {"5", "auto", "-4", ""})
      expect_refusal(run_program(program, {"--data", "text", "--code-activations", codes}),
                     {"--code-activations"});
}

}  // namespace
}  // namespace stowage::samples
