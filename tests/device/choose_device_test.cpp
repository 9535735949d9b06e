// Without any CUDA backend: the environment names a file that is not there.
#include "stowage/choose_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"

namespace stowage {
namespace {

using testing::HasSubstr;

TEST(ChooseDevice, TakesTheSimulatedOneAsAsked) {
  const BackendChoice choice = choose_device("simulated");
  EXPECT_EQ(choice.backend, DeviceBackend::simulated);
  EXPECT_THAT(choice.reason, HasSubstr("as asked"));
}

TEST(ChooseDevice, TakesTheSimulatedOneWhereThereIsNoBackend) {
  const BackendChoice choice = choose_device("auto");
  EXPECT_EQ(choice.backend, DeviceBackend::simulated);
  EXPECT_THAT(choice.reason, HasSubstr("there is no CUDA backend"));
}

TEST(ChooseDevice, RefusesACardThatIsNotThere) {
  for (const char* const name : {"cuda", "cuda:1"}) {
    try {
      choose_device(name);
      FAIL() << name;
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_THAT(error.what(), HasSubstr("there is no CUDA backend"));
    }
  }
}

TEST(ChooseDevice, RefusesANameItDoesNotKnow) {
  for (const char* const name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cudaa", "Cuda"})
    EXPECT_THROW(choose_device(name), InvalidInput) << name;
}

TEST(OpenDevice, OpensTheSimulatedOneWithItsOptions) {
  const ChosenDevice chosen = open_device({.name = "auto", .cuda = {}, .simulated = {.capacity = 12345}});
  EXPECT_EQ(chosen.device->info().backend, "simulated");
  EXPECT_EQ(chosen.device->memory_info().total, 12345u);
  EXPECT_FALSE(chosen.reason.empty());
}

}  // namespace
}  // namespace stowage
