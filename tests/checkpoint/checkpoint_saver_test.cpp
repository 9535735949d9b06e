#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/checkpoint.h"
#include "tests/checkpoint/small_state.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SmallState;

class CheckpointSaverTest : public ::testing::TestWithParam<Saving> {
 protected:
  static CheckpointState at(std::uint64_t step) {
    CheckpointState state;
    state.step = step;
    state.seed = 3;
    return state;
  }
  SmallState saved(std::uint64_t step) const {
    SmallState values(graph_, 0);
    const Checkpoint checkpoint(folder_.path() + "/step-00000000000" + std::to_string(step));
    checkpoint.load(graph_, values.access());
    EXPECT_EQ(checkpoint.state().seed, 3U);
    return values;
  }

  const Graph graph_ = testing::small_graph();
  testing::OwnFolder folder_;
  CheckpointFolder folder{folder_.path(), 10};
};

// Values change as soon as `save` is back.
TEST_P(CheckpointSaverTest, SavesTheValuesOfItsMoment) {
  SmallState values(graph_, 1);
  {
    CheckpointSaver saver(folder, graph_, GetParam());
    EXPECT_EQ(saver.copy_bytes(), GetParam() == Saving::background ? 320U : 0U);
    for (int step = 1; step <= 5; ++step) {
      values = SmallState(graph_, step);
      saver.save(at(static_cast<std::uint64_t>(step)), values.access());
    }
    values = SmallState(graph_, 99);
    EXPECT_THAT(saver.take_failures(), IsEmpty());
  }  // and the last is written to its end
  for (int step = 1; step <= 5; ++step)
    EXPECT_EQ(saved(static_cast<std::uint64_t>(step)), SmallState(graph_, step));
}

TEST_P(CheckpointSaverTest, WhatTheDiskRefusesIsToldAndTheNextIsTried) {
  SmallState values(graph_, 1);
  CheckpointSaver saver(folder, graph_, GetParam());
  std::filesystem::remove_all(folder_.path());
  testing::put(folder_.path(), "no folder");
  saver.save(at(1), values.access());
  saver.finish();
  const auto failures = saver.take_failures();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_THAT(failures[0], HasSubstr("checkpoint of step 1: " + folder_.path()));
  EXPECT_THAT(saver.take_failures(), IsEmpty());
  std::filesystem::remove(folder_.path());
  saver.save(at(2), values.access());
  saver.finish();
  EXPECT_THAT(saver.take_failures(), IsEmpty());
  EXPECT_EQ(saved(2), values);
}

// Nothing of the device is read for it, and the next is tried.
TEST_P(CheckpointSaverTest, WithoutRoomASaveIsLeftOut) {
  const testing::OwnFolder own;
  Bytes room = 0;
  CheckpointFolder small(own.path(), 10, [&](const std::string&) { return room; });
  SmallState values(graph_, 1);
  CheckpointSaver saver(small, graph_, GetParam());
  StateAccess unread = values.access();
  unread.read = [](TensorId, Bytes, std::span<std::byte>) { FAIL() << "read"; };
  saver.save(at(1), unread);
  saver.finish();
  const auto failures = saver.take_failures();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_THAT(failures[0], HasSubstr("checkpoint of step 1: " + own.path() + ": left out"));
  EXPECT_THAT(own.names(), IsEmpty());
  EXPECT_FALSE(saver.first_write());
  room = 1_GiB;
  for (const std::uint64_t step : {2, 3}) saver.save(at(step), values.access());
  saver.finish();
  EXPECT_THAT(saver.take_failures(), IsEmpty());
  EXPECT_THAT(own.names(), ElementsAre("step-000000000002", "step-000000000003"));
  ASSERT_TRUE(saver.first_write());
  EXPECT_EQ(saver.first_write()->step, 2U);
  EXPECT_GT(saver.first_write()->seconds, 0);
}

TEST_P(CheckpointSaverTest, AFolderThatIsRemovedMeanwhileIsMadeAgain) {
  SmallState values(graph_, 1);
  CheckpointSaver saver(folder, graph_, GetParam());
  saver.save(at(1), values.access());
  saver.finish();
  std::filesystem::remove_all(folder_.path());
  saver.save(at(2), values.access());
  saver.finish();
  EXPECT_THAT(saver.take_failures(), IsEmpty());
  EXPECT_EQ(saved(2), values);
}

TEST_P(CheckpointSaverTest, WhatTheDeviceThrowsComesOut) {
  SmallState values(graph_, 1);
  CheckpointSaver saver(folder, graph_, GetParam());
  StateAccess lost = values.access();
  lost.read = [](TensorId, Bytes, std::span<std::byte>) { throw DeviceError("lost", "copy"); };
  EXPECT_THROW(saver.save(at(1), lost), DeviceError);
  EXPECT_THAT(saver.take_failures(), IsEmpty());
  saver.save(at(2), values.access());
  saver.finish();
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000002"));
}

INSTANTIATE_TEST_SUITE_P(Both, CheckpointSaverTest, ::testing::Values(Saving::background, Saving::blocking),
                         [](const auto& info) {
                           return info.param == Saving::background ? "Background" : "Blocking";
                         });

}  // namespace
}  // namespace stowage
