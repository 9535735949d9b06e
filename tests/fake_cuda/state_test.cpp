#include "tests/fake_cuda/state.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fake_cuda/emulated_kernels.h"
#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace fake_cuda_test {
namespace {

using StateTest = FakeCuda;

cudaError_t ask_memory() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total);
}

TEST_F(StateTest, FailsTheNthCallOfAName) {
  fake_cuda_fail_call("cudaMemGetInfo", 3, cudaErrorLaunchTimeout);
  int device = 0;
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(fake_cuda_pending_faults(), 1U);
  EXPECT_EQ(ask_memory(), cudaErrorLaunchTimeout);
  EXPECT_EQ(fake_cuda_pending_faults(), 0U);
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(StateTest, FailsTheNthCallOfAny) {
  fake_cuda_fail_call(nullptr, 2, 0);
  int count = 0;
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(ask_memory(), cudaSuccess);
}

TEST_F(StateTest, SeveralFaultsMayWait) {
  fake_cuda_fail_call("cudaMemGetInfo", 1, cudaErrorInvalidValue);
  fake_cuda_fail_call("cudaMemGetInfo", 2, cudaErrorUnknown);
  EXPECT_EQ(ask_memory(), cudaErrorInvalidValue);
  EXPECT_EQ(ask_memory(), cudaErrorUnknown);
  EXPECT_EQ(ask_memory(), cudaSuccess);
}

TEST_F(StateTest, AFailedCallDoesNothing) {
  void* address = nullptr;
  fake_cuda_fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&address, 100), cudaErrorMemoryAllocation);
  EXPECT_EQ(fake_cuda_live().device_allocations, 0U);
  ASSERT_EQ(cudaMalloc(&address, 100), cudaSuccess);
  fake_cuda_fail_call("cudaFree", 1, cudaErrorUnknown);
  EXPECT_EQ(cudaFree(address), cudaErrorUnknown);
  EXPECT_EQ(fake_cuda_live().device_allocations, 1U);
  EXPECT_EQ(cudaFree(address), cudaSuccess);
}

TEST_F(StateTest, CountsCallsAndNames) {
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(fake_cuda_calls("cudaMemGetInfo"), 2U);
  EXPECT_EQ(fake_cuda_calls("cudaMalloc"), 0U);
  EXPECT_EQ(fake_cuda_calls(nullptr), 3U);
  std::array<const char*, 4> names{};
  ASSERT_EQ(fake_cuda_called(names.data(), names.size()), 2U);
  EXPECT_STREQ(names[0], "cudaMemGetInfo");
  EXPECT_STREQ(names[1], "cudaSetDevice");
  fake_cuda_forget_calls();
  EXPECT_EQ(fake_cuda_calls(nullptr), 0U);
}

TEST_F(StateTest, WithoutADriverEveryCallSaysSo) {
  fake_cuda_set_driver(fake_cuda_no_driver);
  int value = 5;
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaErrorInsufficientDriver);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(ask_memory(), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaDriverGetVersion(&value), cudaSuccess);
  EXPECT_EQ(value, 0);
  EXPECT_NE(cuInit(0), CUDA_SUCCESS);
  fake_cuda_set_driver(fake_cuda_no_device);
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaErrorNoDevice);
  EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
  fake_cuda_set_driver(fake_cuda_driver_present);
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaSuccess);
  EXPECT_EQ(value, 1);
}

TEST_F(StateTest, TheEnvironmentSetsTheStart) {
  setenv("STOWAGE_FAKE_CUDA", "no-device", 1);
  setenv("STOWAGE_FAKE_CUDA_MEMORY", "123456789", 1);
  fake_cuda_reset();
  unsetenv("STOWAGE_FAKE_CUDA");
  unsetenv("STOWAGE_FAKE_CUDA_MEMORY");
  EXPECT_EQ(ask_memory(), cudaErrorNoDevice);
  fake_cuda_set_driver(fake_cuda_driver_present);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, 123456789U);
}

TEST_F(StateTest, TheEnvironmentHidesCards) {
  setenv("STOWAGE_FAKE_CUDA_CARDS", "4", 1);
  const auto last_of_uuids = [](const char* visible) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    fake_cuda_reset();
    unsetenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    cudaGetDeviceCount(&count);
    std::vector<int> found;
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties{};
      EXPECT_EQ(cudaGetDeviceProperties(&properties, i), cudaSuccess);
      found.push_back(properties.uuid.bytes[15]);
    }
    return found;
  };
  EXPECT_EQ(last_of_uuids("0,1,2,3"), (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(last_of_uuids("3,1"), (std::vector{4, 2}));
  EXPECT_EQ(last_of_uuids("2,4,1"), (std::vector{3}));
  EXPECT_EQ(last_of_uuids(""), std::vector<int>{});
  unsetenv("STOWAGE_FAKE_CUDA_CARDS");
}

TEST_F(StateTest, TheEnvironmentFailsACall) {
  setenv("STOWAGE_FAKE_CUDA_FAIL", "cudaMemGetInfo:2", 1);
  fake_cuda_reset();
  unsetenv("STOWAGE_FAKE_CUDA_FAIL");
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(ask_memory(), cudaErrorUnknown);
  EXPECT_EQ(ask_memory(), cudaSuccess);
  setenv("STOWAGE_FAKE_CUDA_FAIL", "cudaDeviceSynchronize+cudaMemGetInfo:2", 1);
  fake_cuda_reset();
  unsetenv("STOWAGE_FAKE_CUDA_FAIL");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(ask_memory(), cudaSuccess);
  EXPECT_EQ(ask_memory(), cudaErrorUnknown);
  EXPECT_EQ(ask_memory(), cudaSuccess);
}

TEST_F(StateTest, ResetFreesWhatIsAlive) {
  void* address = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaMalloc(&address, 100), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  fake_cuda_reset();
  EXPECT_EQ(cudaFree(address), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
}

// The launch succeeds; the fault shows at the next synchronisation, and from then on everywhere. Work
// behind the fault is skipped.
TEST_F(StateTest, AFaultOfAKernelIsAsynchronousAndLasting) {
  const TestStream stream;
  const TestBuffer<float> x(std::vector<float>{1}), y(std::vector<float>{1});
  int ran = 0;
  fake_cuda_fault_kernel(2, cudaErrorIllegalAddress);
  Gate gate;
  gate.hold(stream);
  ASSERT_EQ(launch_axpy(1, 2, x.data(), y.data(), stream), cudaSuccess);
  ASSERT_EQ(launch_axpy(1, 2, x.data(), y.data(), stream), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
                stream, [](void* value) { ++*static_cast<int*>(value); }, &ran),
            cudaSuccess);
  gate.open();
  EXPECT_EQ(stream.synchronise(), cudaErrorIllegalAddress);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(*y.data(), 3);  // the first kernel's
  EXPECT_EQ(fake_cuda_pending_faults(), 0U);
  EXPECT_EQ(ask_memory(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(launch_axpy(1, 2, x.data(), y.data(), stream), cudaErrorIllegalAddress);
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  fake_cuda_reset();
  EXPECT_EQ(ask_memory(), cudaSuccess);
}

TEST_F(StateTest, FunctionsThatAreNotWrittenSaySo) {
  cudaMemPool_t pool = nullptr;
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaErrorNotSupported);
  EXPECT_EQ(fake_cuda_calls("cudaDeviceGetDefaultMemPool"), 1U);
}

}  // namespace
}  // namespace fake_cuda_test
