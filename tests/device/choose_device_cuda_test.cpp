// With a card, as the fake runtime makes believe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/choose_device.h"
#include "stowage/error.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace stowage {
namespace {

using testing::HasSubstr;

class ChooseDeviceCuda : public testing::Test {
 protected:
  void SetUp() override { fake_cuda_reset(); }
};

TEST_F(ChooseDeviceCuda, TakesTheCard) {
  const ChosenDevice chosen = open_device({});
  EXPECT_EQ(chosen.device->info().backend, "cuda");
  EXPECT_THAT(chosen.reason, HasSubstr("CUDA device 0"));
  EXPECT_THAT(chosen.reason, HasSubstr(chosen.device->info().name));
}

TEST_F(ChooseDeviceCuda, TakesTheCardThatIsNamed) {
  EXPECT_EQ(open_device({.name = "cuda:0"}).device->info().backend, "cuda");
  EXPECT_EQ(choose_device("cuda:7").ordinal, 7);
  EXPECT_THROW(open_device({.name = "cuda:7"}), InvalidInput);
}

TEST_F(ChooseDeviceCuda, LeavesTheCardAloneWhereTheSimulatedOneIsAsked) {
  EXPECT_EQ(open_device({.name = "simulated"}).device->info().backend, "simulated");
  EXPECT_EQ(fake_cuda_calls(nullptr), 0u);
}

TEST_F(ChooseDeviceCuda, SaysWhyThereIsNoCard) {
  fake_cuda_set_driver(fake_cuda_no_driver);
  EXPECT_THAT(choose_device("auto").reason, HasSubstr("no CUDA driver answers"));
  fake_cuda_set_driver(fake_cuda_no_device);
  const ChosenDevice chosen = open_device({});
  EXPECT_EQ(chosen.device->info().backend, "simulated");
  EXPECT_THAT(chosen.reason, HasSubstr("sees no card"));
  EXPECT_THROW(open_device({.name = "cuda"}), InvalidInput);
}

}  // namespace
}  // namespace stowage
