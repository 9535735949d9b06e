// train_gpt on a CUDA device, over the fakes, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "stowage/plan.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

std::string some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of the text\n";
  return text;
}

// One variable of the environment, for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class TrainGptCuda : public testing::Test {
 protected:
  Words small(const Words& more) const {
    Words words = {"--data",  text_, "--layers", "2",    "--width",    "64",
                   "--steps", "3",   "--heads",  "2",    "--sequence", "16",
                   "--batch", "2",   "--device", "auto", "--machine",  machine_};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", some_text());
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32, DataType::bf16}));
};

// "loss" and "grad_norm" of each step, and "loss" of each evaluation, as written.
std::string columns(const std::string& path) {
  std::string result;
  std::istringstream lines(contents_of(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{\"rank\"")) continue;  // what a device did
    for (const char* key : {"\"loss\": ", "\"grad_norm\": "}) {
      const std::size_t begin = line.find(key);
      if (begin == std::string::npos) continue;  // an evaluation has no norm
      result += line.substr(begin, line.find_first_of(",}", begin) - begin) + " ";
    }
    result += "\n";
  }
  return result;
}

TEST_F(TrainGptCuda, HasTheSameNumbersInAnyMemory) {
  for (const char* type : {"f32", "bf16", "fp16"}) {
    const Words plan = {"--type", type, "--plan-json", folder_.file("plan"), "--plan-only"};
    const ProgramResult whole = run_train_gpt(small(plan));
    ASSERT_EQ(whole.exit_code, 0) << whole.errors;
    EXPECT_THAT(whole.output, HasSubstr("for context and libraries, which no plan can use"));
    const ProgramResult refused = run_train_gpt(small({"--type", type, "--device-memory", "1000"}));
    EXPECT_EQ(refused.exit_code, 2);
    const std::string words = "the smallest that works is ";
    const std::size_t begin = refused.errors.find(words) + words.size();
    const std::string least = refused.errors.substr(begin, refused.errors.find(' ', begin) - begin);
    std::string expected;
    for (const std::string& memory : {std::string("unlimited"), least}) {
      const ProgramResult run = run_train_gpt(
          small({"--type", type, "--device-memory", memory, "--log", folder_.file(memory), "--evaluate-every",
                 "2", "--evaluate-on", "device", "--evaluation-samples", "3"}));
      ASSERT_EQ(run.exit_code, 0) << run.errors;
      if (expected.empty()) expected = columns(folder_.file(memory));
      EXPECT_EQ(columns(folder_.file(memory)), expected) << type << " in " << memory;
    }
    EXPECT_THAT(expected, HasSubstr("grad_norm"));
  }
}

TEST_F(TrainGptCuda, GoesOnWithMemoryThatCannotBePageLocked) {
  const Words small_memory = {"--policy", "zero-offload", "--log"};
  const auto run = [&](const std::string& log, const Words& more) {
    Words words = small_memory;
    words.push_back(folder_.file(log));
    words.insert(words.end(), more.begin(), more.end());
    return run_train_gpt(small(words));
  };
  EXPECT_THAT(well(run("locked", {})).output, Not(HasSubstr("unpinned")));
  EXPECT_THAT(contents_of(folder_.file("locked")), HasSubstr(R"("unpinned_bytes": 0,)"));
  const Variable variable("STOWAGE_FAKE_CUDA_PINNED", "65536");
  const ProgramResult paged = well(run("paged", {}));
  EXPECT_THAT(paged.output,
              HasSubstr("could not be page-locked and are ordinary memory; the numbers stay the same"));
  EXPECT_THAT(contents_of(folder_.file("paged")), Not(HasSubstr(R"("unpinned_bytes": 0,)")));
  EXPECT_EQ(columns(folder_.file("paged")), columns(folder_.file("locked")));
  expect_refusal(run("never", {"--pageable", "never"}),
                 {"the host cannot page-lock ", "--pageable auto", "--host-memory"});
}

TEST_F(TrainGptCuda, SaysWhyItRunsSimulated) {
  for (const char* absent : {"no-driver", "no-device"}) {
    const Variable variable("STOWAGE_FAKE_CUDA", absent);
    const ProgramResult run = run_train_gpt(small({}));
    EXPECT_EQ(run.exit_code, 0) << run.errors;
    EXPECT_THAT(run.output, HasSubstr("simulated"));
    EXPECT_THAT(run.output, HasSubstr("no "));
    const ProgramResult refused = run_train_gpt(small({"--device", "cuda"}));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.errors, HasSubstr("--device: "));
    EXPECT_THAT(refused.errors, HasSubstr("ask for the simulated device"));
  }
}

// One shape in two directions, twice in a step of two layers.
TEST_F(TrainGptCuda, CountsHowAttentionWasComputed) {
  for (const char* type : {"f32", "bf16", "fp16"}) {
    const std::string log = folder_.file("log"), saved = folder_.file(std::string("saved ") + type);
    const ProgramResult run =
        run_train_gpt(small({"--type", type, "--policy", "none", "--log", log, "--checkpoint", saved}));
    ASSERT_EQ(run.exit_code, 0) << run.errors;
    const bool plain = type == std::string("f32");
    std::istringstream lines(contents_of(log));
    for (std::string line; std::getline(lines, line);)
      EXPECT_EQ(nlohmann::json::parse(line).at("attention"),
                nlohmann::json({{"cudnn", 0}, {"own", plain ? 0 : 4}, {"plain", plain ? 4 : 0}}));
    EXPECT_THAT(run.output, HasSubstr(plain ? "12 of those for f32" : "12 of our own kernels for 16 bits"));
    EXPECT_EQ(run.errors, "") << "cuDNN was asked";
    EXPECT_THAT(contents_of(saved + "/step-000000000003/state.json"),
                HasSubstr(plain ? R"("device.attention":"plain")" : R"("device.attention":"own")"));
  }
}

TEST_F(TrainGptCuda, TellsWhyCudnnDoesNotComputeAShapeOnce) {
  const Variable method("STOWAGE_ATTENTION", "auto"), library("STOWAGE_CUDNN", "/nowhere/libcudnn.so.9");
  const ProgramResult run = run_train_gpt(small({"--type", "bf16"}));
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const std::string shape = "attention of 2 samples, 2 heads of 32 elements, sequence 16, causal, ";
  for (const std::string& text : {run.output, run.errors})
    for (const char* direction : {"forward", "backward"}) {
      const std::size_t first = text.find(shape + direction + ": computed by our own kernels");
      ASSERT_NE(first, std::string::npos) << text;
      EXPECT_EQ(text.find(shape + direction, first + 1), std::string::npos) << text;
    }
  EXPECT_TRUE(run.errors.find("/nowhere/libcudnn.so.9") != std::string::npos ||
              run.errors.find("built without cudnn-frontend's headers") != std::string::npos)
      << run.errors;
}

TEST_F(TrainGptCuda, TakesTheMethodThatIsAskedForOrNone) {
  {
    const Variable method("STOWAGE_ATTENTION", "cudnn"), library("STOWAGE_CUDNN", "/nowhere/libcudnn.so.9");
    const ProgramResult run = run_train_gpt(small({"--type", "bf16"}));
    EXPECT_EQ(run.exit_code, 1);  // found in the step, whose error names the op
    EXPECT_THAT(run.errors, HasSubstr("'h.0.attn'"));
    EXPECT_THAT(run.errors, HasSubstr("attention of 2 samples, 2 heads of 32 elements, sequence 16, causal, "
                                      "forward: cuDNN does not compute it ("));
    EXPECT_THAT(run.errors, HasSubstr("set auto to let our own kernels compute it"));
    EXPECT_EQ(run_train_gpt(small({"--type", "f32"})).exit_code, 0) << "cuDNN computes in bf16 alone";
  }
  const Variable method("STOWAGE_ATTENTION", "cuDNN");
  const ProgramResult wrong = run_train_gpt(small({}));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.errors, HasSubstr("STOWAGE_ATTENTION=cuDNN: unknown; set cudnn, own or auto"));
}

TEST_F(TrainGptCuda, KeepsToWhatIsFree) {
  const Variable variable("STOWAGE_FAKE_CUDA_MEMORY", "2147483648");
  const ProgramResult refused = run_train_gpt(small({"--device-memory", "3GiB"}));
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.errors, HasSubstr("--device-memory 3221225472: only"));
}

#ifdef STOWAGE_WITH_NCCL
// One process, NCCL between the cards: weights and numbers are those of one card, in any memory.
TEST_F(TrainGptCuda, SeveralCardsTrainOneModelToTheBitsOfOne) {
  const Variable variable("STOWAGE_FAKE_CUDA_CARDS", "4");
  const auto run = [&](const std::string& cards, const std::string& memory) {
    const std::string weights = folder_.file("weights"), log = folder_.file("log");
    const ProgramResult result = well(run_train_gpt(
        small({"--batch", "8", "--micro-batches", "4", "--gradient-groups", "4", "--clip", "1", "--device",
               "cuda", "--devices", cards, "--device-memory", memory, "--weights", weights, "--log", log})));
    EXPECT_THAT(result.output, HasSubstr("CUDA device 0"));
    return columns(log) + contents_of(weights);
  };
  const auto least = [&](const std::string& cards) {
    const std::string told = run_train_gpt(small({"--batch", "8", "--gradient-groups", "4", "--micro-batches",
                                                  "4", "--devices", cards, "--device-memory", "1000"}))
                                 .errors;
    const std::string words = "the smallest that works is ";
    const std::size_t begin = told.find(words) + words.size();
    return told.substr(begin, told.find(' ', begin) - begin);
  };
  const std::string alone = run("1", "unlimited");
  ASSERT_THAT(alone, HasSubstr("grad_norm"));
  EXPECT_TRUE(run("2", "unlimited") == alone);
  EXPECT_TRUE(run("2", least("2")) == alone);
  EXPECT_TRUE(run("4", least("4")) == alone);
}
#endif

TEST_F(TrainGptCuda, SaysHowManyCardsThereAre) {
  const Variable variable("STOWAGE_FAKE_CUDA_CARDS", "2");
  expect_refusal(run_train_gpt(small({"--batch", "8", "--devices", "4", "--device", "cuda"})),
                 {"--devices 4: ", "give fewer, or --device simulated"});
}

}  // namespace
}  // namespace stowage::samples
