#include "samples/run/run_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace stowage::samples {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

Graph one_parameter() {
  Graph graph;
  graph.tensors = {{"w", DataType::f32, {256}, TensorKind::parameter, {}}};
  return graph;
}

class DiskNeedTest : public testing::Test {
 protected:
  DiskNeedTest() {
    fs::create_directories(folder_);
    options_.steps = 1000;
    options_.checkpoint_folder = folder_;
    options_.checkpoint_every = 100;
  }
  ~DiskNeedTest() override { fs::remove_all(folder_); }
  DiskNeedTest(const DiskNeedTest&) = delete;
  DiskNeedTest& operator=(const DiskNeedTest&) = delete;

  Bytes bytes(std::uint64_t first_step = 0) const {
    Bytes all = 0;
    for (const DiskNeed& need : disk_needs(options_, one_parameter(), first_step)) all += need.bytes;
    return all;
  }

  std::string folder_ = testing::TempDir() + "disk_need_test";
  Options options_;
};

TEST_F(DiskNeedTest, AreCheckpointsUntilOldOnesGo) {
  EXPECT_EQ(bytes(), 4 * 1024U) << "three are kept while a fourth is written";
  options_.keep = 20;
  EXPECT_EQ(bytes(), 10 * 1024U) << "no more than there will be";
  EXPECT_EQ(bytes(950), 1024U);
  options_.steps = 1001;
  EXPECT_EQ(bytes(950), 2 * 1024U) << "and one behind the last step";
  EXPECT_EQ(bytes(1001), 0U);
  options_.keep = 3;
  fs::create_directories(folder_ + "/step-000000000100");
  fs::create_directories(folder_ + "/step-000000000200");
  EXPECT_EQ(bytes(200), 2 * 1024U) << "two lie there";
}

TEST_F(DiskNeedTest, AreTheBestOneToo) {
  options_.keep_best = true;
  options_.evaluate_every = 50;
  EXPECT_EQ(bytes(), 5 * 1024U);
}

TEST_F(DiskNeedTest, AreParametersOfWeightsAndExports) {
  options_.checkpoint_folder.clear();
  EXPECT_EQ(bytes(), 0U);
  options_.weights_file = "w.bin";
  options_.export_folder = folder_ + "/model";
  const auto needs = disk_needs(options_, one_parameter(), 0);
  ASSERT_EQ(needs.size(), 2U);
  EXPECT_EQ(needs[0].folder, ".");
  EXPECT_EQ(needs[1].folder, folder_);
  EXPECT_EQ(needs[1].bytes, 1024U);
}

TEST(DiskWarnings, AddUpWhatLiesOnOneDisk) {
  const std::vector<DiskNeed> needs = {{"--checkpoint a: 3 of 1 KiB", "/x/a", 3000},
                                       {"--weights w", "/x", 500},
                                       {"--export m", "/y", 500},
                                       {"--trace t", "/nowhere", 9000}};
  Bytes room = 3499;
  const auto disk = [&](const std::string& folder) -> std::optional<Disk> {
    if (folder == "/nowhere") return std::nullopt;
    return Disk{folder.starts_with("/x") ? 1U : 2U, room};
  };
  EXPECT_THAT(disk_warnings(needs, disk),
              ElementsAre(AllOf(HasSubstr("the disk of /x/a has"), HasSubstr("(3499 bytes) left"),
                                HasSubstr("(3500 bytes) there"),
                                HasSubstr("--checkpoint a: 3 of 1 KiB; --weights w"))));
  room = 3500;
  EXPECT_TRUE(disk_warnings(needs, disk).empty());
}

TEST(DiskOf, IsOfAFolder) {
  EXPECT_TRUE(disk_of("/"));
  EXPECT_FALSE(disk_of("/nowhere/at/all"));
}

}  // namespace
}  // namespace stowage::samples
