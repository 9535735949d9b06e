// With tests/device/cuda/fake_nvml.cpp in LD_LIBRARY_PATH, as CTest has it.
#include "src/device/cuda/memory_in_use.h"

#include <gtest/gtest.h>

namespace stowage::cuda {
namespace {

TEST(MemoryInUse, CountsWhatOthersHold) {
  EXPECT_EQ(memory_in_use("0000:01:00.0"), 123_MiB);
  EXPECT_EQ(memory_in_use("0000:01:00.0"), 123_MiB);
}

TEST(MemoryInUse, KnowsNothingOfADeviceThatIsNotThere) {
  EXPECT_EQ(memory_in_use("7fff:00:00.0"), std::nullopt);
}

}  // namespace
}  // namespace stowage::cuda
