// Without any CUDA backend: the environment names a file that is not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

Op op_of(const std::string& kernel) {
  Op op;
  op.name = "op";
  op.kernel = kernel;
  return op;
}

TEST(CudaLaunchTable, SaysThatThereIsNoBackend) {
  try {
    cuda_launch_table();
    FAIL() << "there is one";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("there is no CUDA backend"));
  }
}

TEST(LaunchTableFor, GivesTheSimulatedDeviceTheCpuKernels) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  EXPECT_EQ(launch_table_for(*device).find(op_of("linear")), cpu_launch_table().find(op_of("linear")));
}

}  // namespace
}  // namespace stowage
