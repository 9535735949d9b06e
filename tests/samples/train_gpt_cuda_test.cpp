// train_gpt on a CUDA device, over the fakes, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stowage/plan.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/samples/temporary_folder.h"

namespace stowage::samples {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of the text\n";
  return text;
}

// One variable of the environment, for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
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

// "loss" and "grad_norm" of each step, as written.
std::string columns(const std::string& path) {
  std::string result;
  std::istringstream lines(contents_of(path));
  for (std::string line; std::getline(lines, line);) {
    for (const char* key : {"\"loss\": ", "\"grad_norm\": "}) {
      const std::size_t begin = line.find(key);
      result += line.substr(begin, line.find_first_of(",}", begin) - begin) + " ";
    }
    result += "\n";
  }
  return result;
}

TEST_F(TrainGptCuda, HasTheSameNumbersInAnyMemory) {
  for (const char* type : {"f32", "bf16"}) {
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
      const ProgramResult run =
          run_train_gpt(small({"--type", type, "--device-memory", memory, "--log", folder_.file(memory)}));
      ASSERT_EQ(run.exit_code, 0) << run.errors;
      if (expected.empty()) expected = columns(folder_.file(memory));
      EXPECT_EQ(columns(folder_.file(memory)), expected) << type << " in " << memory;
    }
    EXPECT_THAT(expected, HasSubstr("grad_norm"));
  }
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

TEST_F(TrainGptCuda, KeepsToWhatIsFree) {
  const Variable variable("STOWAGE_FAKE_CUDA_MEMORY", "2147483648");
  const ProgramResult refused = run_train_gpt(small({"--device-memory", "3GiB"}));
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.errors, HasSubstr("--device-memory 3221225472: only"));
}

}  // namespace
}  // namespace stowage::samples
