#include "stowage/rank_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "stowage/error.h"

namespace stowage::ranks {
namespace {

RankLaunch launch(const std::map<std::string, const char*>& environment) {
  return read_launch([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second;
  });
}

void expect_launch(const std::map<std::string, const char*>& environment, int rank, int size,
                   const char* by) {
  const RankLaunch found = launch(environment);
  EXPECT_EQ(found.rank, rank);
  EXPECT_EQ(found.size, size);
  EXPECT_EQ(found.by, by);
}

TEST(ReadLaunch, IsAloneWithoutALauncher) { expect_launch({}, 0, 1, ""); }

TEST(ReadLaunch, KnowsMpirun) {
  expect_launch({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}, 3, 4, "mpirun");
  expect_launch({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}, 0, 1, "");
}

TEST(ReadLaunch, SaysHowManyAreHere) {
  EXPECT_EQ(
      launch(
          {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
          .here,
      2);
  EXPECT_EQ(launch({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}).here, 0);
}

TEST(ReadLaunch, TakesMpirunsWithinASlurmJob) {
  expect_launch({{"OMPI_COMM_WORLD_SIZE", "8"},
                 {"OMPI_COMM_WORLD_RANK", "5"},
                 {"PMIX_RANK", "5"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_PROCID", "1"}},
                5, 8, "mpirun");
}

TEST(ReadLaunch, KnowsSrunAndOthers) {
  expect_launch({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMIX_RANK", "1"}}, 1, 2, "srun");
  expect_launch({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, 1, 2, "mpiexec");
}

// torchrun's agent listens at MASTER_PORT itself.
TEST(ReadLaunch, KnowsTorchrun) {
  std::map<std::string, const char*> environment = {
      {"WORLD_SIZE", "4"},       {"RANK", "3"},
      {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "box1"},
      {"MASTER_PORT", "29500"},  {"TORCHELASTIC_RUN_ID", "none"}};
  expect_launch(environment, 3, 4, "torchrun");
  EXPECT_EQ(launch(environment).here, 2);
  EXPECT_EQ(launch(environment).rank_variable, "RANK");
  EXPECT_EQ(launch(environment).host, "box1");
  EXPECT_EQ(launch(environment).port, 29501);
  environment["STOWAGE_PORT"] = "4000";
  EXPECT_EQ(launch(environment).port, 4000);
  environment["WORLD_SIZE"] = "1";
  expect_launch(environment, 0, 1, "");
}

// As in an interactive step of Slurm, where each would train alone or as one rank of that step.
TEST(ReadLaunch, KnowsTorchrunWithinAnotherLaunchersJob) {
  const std::map<std::string, const char*> by_torchrun = {{"WORLD_SIZE", "4"},
                                                          {"RANK", "3"},
                                                          {"MASTER_ADDR", "box1"},
                                                          {"MASTER_PORT", "29500"},
                                                          {"TORCHELASTIC_RUN_ID", "none"}};
  for (const char* size : {"1", "2"})
    for (const auto& [size_name, rank_name] :
         std::map<std::string, std::string>{{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                            {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
                                            {"PMI_SIZE", "PMI_RANK"}}) {
      auto environment = by_torchrun;
      environment.insert({{size_name, size}, {rank_name, "0"}, {"PMIX_RANK", "0"}});
      expect_launch(environment, 3, 4, "torchrun");
      environment.erase("TORCHELASTIC_RUN_ID");
      EXPECT_EQ(launch(environment).size, *size == '1' ? 4 : 2) << size_name;
    }
}

TEST(ReadLaunch, KnowsPlainVariables) {
  std::map<std::string, const char*> environment = {
      {"WORLD_SIZE", "4"}, {"RANK", "3"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}};
  expect_launch(environment, 3, 4, "the environment");
  EXPECT_EQ(launch(environment).rank_variable, "");
  EXPECT_EQ(launch(environment).host, "10.0.0.7");
  EXPECT_EQ(launch(environment).port, 29500);
  environment["STOWAGE_PORT"] = "4000";
  EXPECT_EQ(launch(environment).port, 4000);
  environment.insert({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  expect_launch(environment, 1, 2, "mpirun");
  EXPECT_EQ(launch(environment).port, 0);
}

// Of which a script may have some for purposes of its own; but torchrun sets them all, and one rank of
// several would train alone, as each of the others.
TEST(ReadLaunch, TakesAllPlainVariablesOrNone) {
  for (const char* address : {"MASTER_ADDR", "MASTER_PORT", "HOME"})
    EXPECT_THROW(launch({{"WORLD_SIZE", "4"}, {"RANK", "3"}, {address, "29500"}}), InvalidInput);
  expect_launch({{"WORLD_SIZE", "1"}, {"RANK", "0"}}, 0, 1, "");
  expect_launch({{"WORLD_SIZE", "4"}, {"RANK", "of nobility"}}, 0, 1, "");
  expect_launch({{"RANK", "3"}, {"MASTER_ADDR", "box1"}, {"MASTER_PORT", "29500"}}, 0, 1, "");
  expect_launch({{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "box1"}, {"MASTER_PORT", "29500"}}, 0, 1, "");
  EXPECT_THROW(launch({{"WORLD_SIZE", "4"}, {"RANK", "3"}, {"TORCHELASTIC_RUN_ID", "none"}}), InvalidInput);
}

TEST(ReadLaunch, RefusesPlainVariablesThatMakeNoSense) {
  const std::map<std::string, const char*> good = {
      {"WORLD_SIZE", "4"}, {"RANK", "3"}, {"MASTER_ADDR", "box1"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, values] :
       std::map<std::string, std::vector<const char*>>{{"WORLD_SIZE", {"", "x", "0", "-4", "99999999999"}},
                                                       {"RANK", {"", "4", "-1", "3x"}},
                                                       {"MASTER_ADDR", {""}},
                                                       {"MASTER_PORT", {"", "0", "65536", "http"}},
                                                       {"STOWAGE_PORT", {"", "0", "65536", "http"}}})
    for (const char* const value : values) {
      auto environment = good;
      environment[name] = value;
      try {
        launch(environment);
        ADD_FAILURE() << name << '=' << value;
      } catch (const InvalidInput& error) {
        EXPECT_THAT(error.what(),
                    ::testing::StartsWith(name + "=" + value + ", by the environment: let it be "));
      }
    }
  auto by_torchrun = good;
  by_torchrun.insert({"TORCHELASTIC_RUN_ID", "none"});
  by_torchrun["MASTER_PORT"] = "65535";  // there is no next one
  EXPECT_THROW(launch(by_torchrun), InvalidInput);
}

// A batch script, and tasks that do not know each other.
TEST(ReadLaunch, IsAloneInTasksWithoutAPmi) {
  expect_launch({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, 0, 1, "");
  expect_launch({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "2"}}, 0, 1, "");
}

TEST(ReadLaunch, IgnoresWhatIsNoNumber) {
  for (const char* size : {"", "x", "4x", "-4", "99999999999", "0"})
    expect_launch({{"OMPI_COMM_WORLD_SIZE", size}, {"OMPI_COMM_WORLD_RANK", "0"}}, 0, 1, "");
  expect_launch({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "4"}}, 0, 1, "");
}

}  // namespace
}  // namespace stowage::ranks
