// Kernels that nvcc compiled into this program, run from the same source compiled through the shim.
#include "tests/fake_cuda/kernel_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/fake_cuda/emulated_kernels.h"
#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace fake_cuda_test {
namespace {

using KernelTableTest = FakeCuda;

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST_F(KernelTableTest, RunsAKernelByItsMangledName) {
  const TestStream stream;
  const TestBuffer<float> x(ramp(1000)), y(ramp(1000));
  ASSERT_EQ(launch_axpy(999, 2, x.data(), y.data(), stream), cudaSuccess);
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  const std::vector<float> result = y.read();
  for (std::size_t i = 0; i < 999; ++i) ASSERT_EQ(result[i], 3 * static_cast<float>(i)) << i;
  EXPECT_EQ(result[999], 999);
}

TEST_F(KernelTableTest, RunsWhatChevronsLaunch) {
  const TestStream stream;
  const TestBuffer<float> x(ramp(300)), y(ramp(300));
  launch_axpy_by_chevrons(300, 1, x.data(), y.data(), stream);
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(y.read()[299], 598);
}

// The arguments are the launch's own: what they were in is long gone when the kernel runs.
TEST_F(KernelTableTest, KeepsTheArgumentsUntilTheKernelRuns) {
  const TestStream stream;
  const TestBuffer<double> out(2);
  Gate gate;
  gate.hold(stream);
  ASSERT_EQ(launch_store_pair({1.5, 7}, out.data(), stream), cudaSuccess);
  gate.open();
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(out.read(), (std::vector<double>{1.5, 7}));
}

TEST_F(KernelTableTest, KernelsOfDifferentStreamsRunAtOnce) {
  const TestStream first, second;
  const TestBuffer<float> x(ramp(64 * 256)), left(64), right(64);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(launch_block_sum(64, 256, x.data(), left.data(), first), cudaSuccess);
    ASSERT_EQ(launch_block_sum(64, 256, x.data(), right.data(), second), cudaSuccess);
  }
  ASSERT_EQ(first.synchronise(), cudaSuccess);
  ASSERT_EQ(second.synchronise(), cudaSuccess);
  EXPECT_EQ(left.read(), right.read());
}

TEST_F(KernelTableTest, RefusesLaunchesThatACardWouldRefuse) {
  const TestBuffer<int> x(1024), y(1024);
  EXPECT_EQ(launch_reverse(0, 32, x.data(), y.data(), 128, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_reverse(1, 1025, x.data(), y.data(), 4100, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_positions({1, 65536}, {1}, x.data(), nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch_reverse(1, 32, x.data(), y.data(), (48 << 10) + 1, nullptr), cudaErrorInvalidValue);
  int nothing = 0;
  EXPECT_EQ(cudaLaunchKernel(&nothing, dim3(1), dim3(1), nullptr, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaFuncSetAttribute(&nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 1),
            cudaErrorInvalidDeviceFunction);
}

TEST_F(KernelTableTest, NamesAKernelThatIsNotThere) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch_unregistered(nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("unregistered_kernel"), std::string::npos);
}

}  // namespace
}  // namespace fake_cuda_test
