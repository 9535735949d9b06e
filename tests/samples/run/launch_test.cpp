#include "samples/run/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace stowage::samples {
namespace {

Launch launch(const std::map<std::string, const char*>& environment) {
  return read_launch([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second;
  });
}

void expect_launch(const std::map<std::string, const char*>& environment, int rank, int size,
                   const char* by) {
  const Launch found = launch(environment);
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

// Not by variables that a script may have for purposes of its own.
TEST(ReadLaunch, KnowsTorchrun) {
  expect_launch({{"WORLD_SIZE", "4"}, {"RANK", "3"}, {"TORCHELASTIC_RUN_ID", "none"}}, 3, 4, "torchrun");
  expect_launch({{"WORLD_SIZE", "4"}, {"RANK", "3"}}, 0, 1, "");
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
}  // namespace stowage::samples
