#include "tests/fake_cuda/virtual_memory.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace fake_cuda_test {
namespace {

constexpr std::size_t granule = std::size_t{2} << 20;

CUmemAllocationProp on_the_card() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  return prop;
}

class VirtualMemoryTest : public FakeCuda {
 protected:
  static CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  static CUmemGenericAllocationHandle create(std::size_t bytes) {
    const CUmemAllocationProp prop = on_the_card();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUresult allow(CUdeviceptr address, std::size_t bytes) {
    CUmemAccessDesc access{};
    access.location = on_the_card().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cuMemSetAccess(address, bytes, &access, 1);
  }
  static char* bytes_at(CUdeviceptr address) {
    return reinterpret_cast<char*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
};

TEST_F(VirtualMemoryTest, TellsItsGranularity) {
  const CUmemAllocationProp prop = on_the_card();
  std::size_t bytes = 0;
  ASSERT_EQ(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), CUDA_SUCCESS);
  EXPECT_EQ(bytes, granule);
}

TEST_F(VirtualMemoryTest, OneHandleMappedTwiceIsOneMemory) {
  const CUdeviceptr range = reserve(4 * granule);
  EXPECT_EQ(range % granule, 0U);
  const auto handle = create(granule);
  ASSERT_EQ(cuMemMap(range, granule, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range + 2 * granule, granule, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(allow(range, granule), CUDA_SUCCESS);
  ASSERT_EQ(allow(range + 2 * granule, granule), CUDA_SUCCESS);
  bytes_at(range)[5] = 42;
  EXPECT_EQ(bytes_at(range + 2 * granule)[5], 42);
  EXPECT_EQ(fake_cuda_live().mappings, 2U);
  ASSERT_EQ(cuMemUnmap(range, granule), CUDA_SUCCESS);
  ASSERT_EQ(cuMemUnmap(range + 2 * granule, granule), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressFree(range, 4 * granule), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, ARemappedRangeHoldsOtherMemory) {
  const CUdeviceptr range = reserve(granule);
  const auto first = create(granule), second = create(granule);
  for (const auto handle : {first, second, first}) {
    ASSERT_EQ(cuMemMap(range, granule, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(allow(range, granule), CUDA_SUCCESS);
    EXPECT_EQ(bytes_at(range)[0], handle == first && fake_cuda_calls("cuMemMap") == 3 ? 1 : '\xff');
    bytes_at(range)[0] = handle == first ? 1 : 2;
    ASSERT_EQ(cuMemUnmap(range, granule), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressFree(range, granule), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, TheRuntimesAccountCountsPhysicalMemory) {
  fake_cuda_set_page_tables(0, 0);
  fake_cuda_set_memory(10 * granule, 2 * granule);
  const CUdeviceptr range = reserve(100 * granule);  // address space costs nothing
  const auto handle = create(6 * granule);
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 2 * granule);
  EXPECT_EQ(total, 10 * granule);
  const CUmemAllocationProp prop = on_the_card();
  CUmemGenericAllocationHandle other = 0;
  EXPECT_EQ(cuMemCreate(&other, 3 * granule, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemMap(range, 6 * granule, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);  // the mapping keeps it
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 2 * granule);
  ASSERT_EQ(cuMemUnmap(range, 6 * granule), CUDA_SUCCESS);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 8 * granule);
  ASSERT_EQ(cuMemAddressFree(range, 100 * granule), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, CallsTakeTimeAndMappingsTables) {
  const CUdeviceptr range = reserve(2 * granule);
  const auto first = create(granule), second = create(granule);
  std::size_t before = 0, free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  ASSERT_EQ(cuMemMap(range, granule, 0, first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range + granule, granule, 0, second, 0), CUDA_SUCCESS);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, before - 2 * 4096);
  ASSERT_EQ(cuMemUnmap(range, 2 * granule), CUDA_SUCCESS);  // both in one call
  ASSERT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, before + 2 * granule - 2 * 4096);
  ASSERT_EQ(cuMemAddressFree(range, 2 * granule), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda_virtual_nanoseconds(), 9 * 25'000U);
  fake_cuda_forget_calls();
  EXPECT_EQ(fake_cuda_virtual_nanoseconds(), 0U);
}

TEST_F(VirtualMemoryTest, CopiesMaySpanNeighbouringMappings) {
  const CUdeviceptr range = reserve(3 * granule);
  const auto first = create(granule), second = create(granule);
  ASSERT_EQ(cuMemMap(range, granule, 0, first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range + granule, granule, 0, second, 0), CUDA_SUCCESS);
  const std::vector<char> host(granule, 7);
  char* const middle = bytes_at(range) + granule / 2;
  // Memory that is mapped but may not be accessed is unknown to the runtime.
  EXPECT_EQ(cudaMemcpy(middle, host.data(), granule, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  ASSERT_EQ(allow(range, 2 * granule), CUDA_SUCCESS);
  EXPECT_EQ(cudaMemcpy(middle, host.data(), granule, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(middle + granule, host.data(), granule, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(std::memcmp(middle, host.data(), granule), 0);
  ASSERT_EQ(cuMemUnmap(range, 2 * granule), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(first), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressFree(range, 3 * granule), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, RefusesMisuse) {
  const CUdeviceptr range = reserve(2 * granule);
  const auto handle = create(granule);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, granule + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 1, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range + 2 * granule, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range, 2 * granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(range, granule, 0, handle + 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allow(range, granule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, granule), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemMap(range, granule, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range, granule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range, 2 * granule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(range, 2 * granule), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemUnmap(range, granule), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(range, granule), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAddressFree(range, 2 * granule), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryTest, ADriverWithoutItRefusesAllOfIt) {
  fake_cuda_set_virtual_memory(0);
  int supported = 1;
  ASSERT_EQ(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(supported, 0);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, granule, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(VirtualMemoryTest, TheRuntimeFindsTheDriversFunctions) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuMemMap", &function, 13000, cudaEnableDefault, &result),
            cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSuccess);
  EXPECT_EQ(function, reinterpret_cast<void*>(&cuMemMap));
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuMemGetInfo", &function, 13000, cudaEnableDefault, &result),
            cudaSuccess);
  EXPECT_EQ(function, reinterpret_cast<void*>(&cuMemGetInfo));
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuNothing", &function, 13000, cudaEnableDefault, &result),
            cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
}

// What may not be touched: a reservation, a mapping before access is set, a range after its unmap.
TEST(VirtualMemoryDeathTest, UnmappedMemoryMayNotBeTouched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch = [](int when) {
    std::signal(SIGSEGV, SIG_DFL);
    CUdeviceptr range = 0;
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = on_the_card();
    CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuMemAddressReserve(&range, granule, 0, 0, 0);
    cuMemCreate(&handle, granule, &prop, 0);
    auto* bytes = reinterpret_cast<volatile char*>(range);  // NOLINT(performance-no-int-to-ptr)
    if (when == 0) bytes[0] = 1;
    cuMemMap(range, granule, 0, handle, 0);
    if (when == 1) bytes[0] = 1;
    cuMemSetAccess(range, granule, &access, 1);
    bytes[0] = 1;
    cuMemUnmap(range, granule);
    if (when == 2) bytes[0] = 1;
    std::_Exit(0);
  };
  EXPECT_EXIT(touch(0), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(touch(1), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(touch(2), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(touch(3), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fake_cuda_test
