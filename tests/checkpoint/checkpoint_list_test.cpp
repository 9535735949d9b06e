#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/checkpoint.h"
#include "tests/checkpoint/small_state.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointList : public ::testing::Test {
 protected:
  void write(std::uint64_t step) {
    CheckpointFolder(folder_.path(), 10)
        .write(testing::small_checkpoint(graph_, step), values_.values_of(graph_));
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  const Graph graph_ = testing::small_graph();
  testing::SmallState values_{graph_, 1};
  testing::OwnFolder folder_;
};

TEST_F(CheckpointList, IsTheNamesThatCount) {
  for (const char* name : {"step-000000000002", "step-000000000010", "step-1000000000000", "step-2", "step-",
                           "step--00000000001", "step-00000000000a", ".writing-1-step-000000000011", "notes"})
    std::filesystem::create_directory(path(name));
  const auto found = list_checkpoints(folder_.path());
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].step, 1'000'000'000'000U);
  EXPECT_EQ(found[1].path, path("step-000000000010"));
  EXPECT_EQ(found[2].step, 2U);
  EXPECT_THAT(list_checkpoints(path("not there")), IsEmpty());
  testing::put(path("file"), "");
  EXPECT_THROW(list_checkpoints(path("file")), InvalidInput);
}

TEST_F(CheckpointList, AnotherStepThanTheNameSaysIsRefused) {
  write(4);
  const std::string own = path("step-000000000004");
  for (const char* name : {"step-000000000006", "step-6"}) {
    std::filesystem::rename(own, path(name));
    test::expect_refused([&] { Checkpoint(path(name)); },
                         "its name is that of step 6, and 'step' in state.json is 4");
    std::filesystem::create_directory_symlink(path(name), path("latest"));
    test::expect_refused([&] { Checkpoint(path("latest")); }, "its name is that of step 6");
    std::filesystem::remove(path("latest"));
    std::filesystem::rename(path(name), own);
  }
  for (const char* name : {"step-4", "best"}) {
    std::filesystem::rename(own, path(name));
    EXPECT_EQ(Checkpoint(path(name)).state().step, 4U);
    std::filesystem::rename(path(name), own);
  }
}

TEST_F(CheckpointList, TheNewestIsOpened) {
  EXPECT_FALSE(open_newest_checkpoint(folder_.path()));
  write(9);
  write(10);
  EXPECT_EQ(open_newest_checkpoint(folder_.path())->state().step, 10U);
}

TEST_F(CheckpointList, ADamagedOneNamesTheOneBefore) {
  for (const std::uint64_t step : {1, 2, 3}) write(step);
  testing::put(path("step-000000000003/tensors.bin"), "short");
  testing::put(path("step-000000000002/state.json"), "{}");
  try {
    open_newest_checkpoint(folder_.path());
    FAIL() << "opened";
  } catch (const DamagedCheckpoint& error) {
    EXPECT_EQ(error.good(), path("step-000000000001"));
    EXPECT_THAT(error.what(), HasSubstr("step-000000000003/tensors.bin: it has 5 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("good one is " + error.good()));
  }
  std::filesystem::remove_all(path("step-000000000001"));
  try {
    open_newest_checkpoint(folder_.path());
    FAIL() << "opened";
  } catch (const DamagedCheckpoint& error) {
    EXPECT_EQ(error.good(), "");
  }
}

}  // namespace
}  // namespace stowage
