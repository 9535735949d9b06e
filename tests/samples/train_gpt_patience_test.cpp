// train_gpt --patience from end to end.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "stowage/checkpoint.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/run_program.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainGptPatience : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  // A rate at which later steps are worse than earlier ones.
  ProgramResult run(const Words& more) const {
    Words words = {"--data",          text_,  "--device",         "simulated",   "--machine",        machine_,
                   "--policy",        "none", "--layers",         "1",           "--width",          "16",
                   "--heads",         "2",    "--sequence",       "8",           "--batch",          "4",
                   "--learning-rate", "3",    "--schedule",       "constant",    "--warmup",         "0",
                   "--steps",         "40",   "--link-bandwidth", "unthrottled", "--evaluate-every", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return well(run_train_gpt(words));
  }
  Words saving(const std::string& name, const Words& more) const {
    Words words = {
        "--checkpoint", folder_.file(name), "--checkpoint-every", "1", "--keep", "99", "--patience", "3"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<nlohmann::json> evaluations(const std::string& log) const {
    std::vector<nlohmann::json> result;
    std::istringstream lines(contents_of(log));
    for (std::string line; std::getline(lines, line);)
      if (auto read = nlohmann::json::parse(line); read.contains("evaluation"))
        result.push_back(std::move(read));
    return result;
  }
  // All files of a folder, by their names.
  std::map<std::string, std::string> files_of(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file(name)))
      files[entry.path().filename().string()] = contents_of(entry.path().string());
    return files;
  }
  std::string newest(const std::string& name) const {
    return list_checkpoints(folder_.file(name)).at(0).path;
  }
  std::string ended_behind(std::uint64_t step) const {
    return "\nended early   behind step " + std::to_string(step) + " of 40: 3 evaluations in a row without";
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.make("text", std::string(500, 'a') + std::string(500, 'b'));
  std::string machine_ = folder_.make("machine.json", machine_json({DataType::f32}));
};

TEST_F(TrainGptPatience, EndsTheTrainingAndKeepsAndExportsTheBest) {
  const std::string log = folder_.file("log");
  const ProgramResult result =
      run(saving("run", {"--keep", "1", "--log", log, "--export", folder_.file("best"), "--weights",
                         folder_.file("last"), "--report", folder_.file("page")}));
  const auto measured = evaluations(log);
  ASSERT_GE(measured.size(), 4U);
  double least = measured[0]["evaluation"]["loss"];
  std::uint64_t best = measured[0]["step"], since = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const double loss = measured[i]["evaluation"]["loss"];
    since = i == 0 || loss < least ? 0 : since + 1;
    if (since == 0) best = measured[i]["step"];
    least = std::min(least, loss);
    EXPECT_EQ(measured[i]["since_best"], since) << i;
    EXPECT_EQ(measured[i].contains("stops"), i + 1 == measured.size()) << i;
  }
  EXPECT_EQ(since, 3U);
  const std::uint64_t last = measured.back()["step"];
  EXPECT_LT(last, 40U);
  EXPECT_THAT(result.output, HasSubstr(ended_behind(last)));
  EXPECT_THAT(contents_of(folder_.file("page")), HasSubstr("3 evaluations in a row without a lower loss"));
  EXPECT_EQ(list_checkpoints(folder_.file("run")).at(0).step, last);
  const auto kept = find_best_checkpoint(folder_.file("run"));
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->step, best);
  EXPECT_THAT(result.output,
              HasSubstr("; weights of step " + std::to_string(best) + ", the best, from " + kept->path));
  run({"--steps", "0", "--evaluate-every", "0", "--resume", kept->path, "--export", folder_.file("again")});
  run({"--steps", "0", "--evaluate-every", "0", "--resume", newest("run"), "--weights", folder_.file("w"),
       "--export", folder_.file("newest")});
  EXPECT_EQ(files_of("best"), files_of("again"));
  EXPECT_NE(files_of("best"), files_of("newest"));
  EXPECT_TRUE(contents_of(folder_.file("last")) == contents_of(folder_.file("w")))
      << "--weights are the last";
}

TEST_F(TrainGptPatience, AResumedRunGoesOnCounting) {
  run(saving("whole", {}));
  const std::uint64_t end = list_checkpoints(folder_.file("whole")).at(0).step;
  const std::string before = list_checkpoints(folder_.file("whole")).at(1).path;  // between two evaluations
  EXPECT_EQ(Checkpoint(before).state().least_score->since, 2U);
  const std::string output = run(saving("rest", {"--resume", before})).output;
  EXPECT_THAT(output, HasSubstr("ends after 3 evaluations in a row without a new least loss; so far 2 eval"));
  EXPECT_THAT(output, HasSubstr(ended_behind(end)));
  EXPECT_TRUE(contents_of(newest("rest") + "/tensors.bin") == contents_of(newest("whole") + "/tensors.bin"));
  // What has ended makes no step, unless there is more patience.
  const ProgramResult again = run(saving("whole", {"--resume"}));
  EXPECT_THAT(again.output, HasSubstr(ended_behind(end)));
  EXPECT_THAT(again.output, Not(HasSubstr("/40  loss ")));
  EXPECT_EQ(list_checkpoints(folder_.file("whole")).at(0).step, end);
  run(saving("whole", {"--resume", "--patience", "4", "--steps", std::to_string(end + 1)}));
  EXPECT_EQ(list_checkpoints(folder_.file("whole")).at(0).step, end + 1);
}

// A run that did not count: its best begins the count.
TEST_F(TrainGptPatience, BeginsWithTheBestOfARunThatDidNotCount) {
  const std::string folder = folder_.file("run");
  run({"--checkpoint", folder, "--keep-best", "--steps", "8"});
  const auto best = find_best_checkpoint(folder);
  ASSERT_TRUE(best);
  EXPECT_THAT(run(saving("run", {"--resume"})).output,
              HasSubstr("so far 0 evaluations in a row without a lower loss than " +
                        fmt::format("{:.4f}, of step {}", best->score, best->step)));
}

TEST_F(TrainGptPatience, WithoutCheckpointsTheExportIsOfTheLastStep) {
  const std::string output = run({"--patience", "1", "--export", folder_.file("out")}).output;
  EXPECT_THAT(output, HasSubstr("\nended early   behind step "));
  EXPECT_THAT(output, ::testing::ContainsRegex("; weights of step [0-9]+, the last\n"));
  EXPECT_THAT(run({"--patience", "99"}).output, Not(HasSubstr("ended early")));
}

}  // namespace
}  // namespace stowage::samples
