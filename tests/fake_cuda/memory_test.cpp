#include "tests/fake_cuda/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace fake_cuda_test {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

class MemoryTest : public FakeCuda {
 protected:
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  }
};

TEST_F(MemoryTest, TheAccountIsCapacityLessContextLessAllocations) {
  fake_cuda_set_memory(16 * mib, 4 * mib);
  EXPECT_EQ(free_bytes(), 12 * mib);
  void* address = nullptr;
  ASSERT_EQ(cudaMalloc(&address, 10 * mib + 1), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 256, 0U);
  EXPECT_EQ(free_bytes(), 2 * mib - 512);
  void* more = &more;
  EXPECT_EQ(cudaMalloc(&more, 2 * mib), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(fake_cuda_live().device_bytes, 10 * mib + 1);
  EXPECT_EQ(cudaFree(address), cudaSuccess);
  EXPECT_EQ(free_bytes(), 12 * mib);
  EXPECT_EQ(cudaMalloc(&address, 12 * mib), cudaSuccess);
  EXPECT_EQ(cudaFree(address), cudaSuccess);
}

TEST_F(MemoryTest, PageTablesAreTakenOfTheCardAndStay) {
  const std::size_t before = free_bytes();
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 256 * mib), cudaSuccess);
  EXPECT_EQ(free_bytes(), before - mib / 2);  // 8 bytes for each page of 4 KiB
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 256 * mib), cudaSuccess);
  EXPECT_EQ(free_bytes(), before - mib / 2);
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(free_bytes(), before - mib / 2);
  fake_cuda_set_memory(64 * mib, 63 * mib);
  EXPECT_EQ(cudaMallocHost(&pinned, 1024 * mib), cudaErrorMemoryAllocation);
  fake_cuda_set_page_tables(0, 0);
  ASSERT_EQ(cudaMallocHost(&pinned, 1024 * mib), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(MemoryTest, CountsPagesThatRegistrationHasToFaultIn) {
  void* const memory = mmap(nullptr, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, 16 * 4096);
  ASSERT_EQ(cudaHostRegister(memory, 64 * 4096, 0), cudaSuccess);
  EXPECT_EQ(fake_cuda_misuses().pages_pinned_unfaulted, 48U);
  ASSERT_EQ(cudaHostUnregister(memory), cudaSuccess);
  munmap(memory, 64 * 4096);
}

TEST_F(MemoryTest, FreshMemoryIsNotZero) {
  const TestBuffer<std::uint8_t> buffer(1000);
  EXPECT_EQ(buffer.read(), std::vector<std::uint8_t>(1000, 0xff));
}

TEST_F(MemoryTest, FreesOnlyWhatItGave) {
  int host = 0;
  EXPECT_EQ(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

TEST_F(MemoryTest, RegistersHostMemoryOnce) {
  std::vector<char> memory(4096);
  ASSERT_EQ(cudaHostRegister(memory.data(), 4096, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(memory.data() + 100, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(fake_cuda_live().pinned_bytes, 4096U);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaHostRegister(nullptr, 10, 0), cudaErrorInvalidValue);
}

TEST_F(MemoryTest, CopiesBothWaysInStreamOrder) {
  const TestStream stream;
  const TestBuffer<int> device(1000);
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), 2000 * sizeof(int)), cudaSuccess);
  std::iota(pinned, pinned + 1000, 7);
  std::fill(pinned + 1000, pinned + 2000, 0);
  const std::size_t bytes = 1000 * sizeof(int);
  ASSERT_EQ(cudaMemcpyAsync(device.data(), pinned, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned + 1000, device.data(), bytes, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(std::memcmp(pinned, pinned + 1000, bytes), 0);
  EXPECT_EQ(fake_cuda_misuses().pageable_copies, 0U);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(MemoryTest, ACopyWaitsForItsStream) {
  const TestStream stream;
  const TestBuffer<int> device(1);
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)), cudaSuccess);
  *pinned = 1;
  Gate gate;
  gate.hold(stream);
  ASSERT_EQ(cudaMemcpyAsync(device.data(), pinned, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  *pinned = 2;  // not read yet
  gate.open();
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(device.read(), std::vector<int>{2});
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(MemoryTest, AnAsynchronousCopyOfPageableMemoryIsMadeAtOnceAndCountedWhereItsStreamHasWork) {
  const TestStream stream;
  const TestBuffer<int> device(1);
  int value = 5;
  const auto copy = [&] {
    return cudaMemcpyAsync(device.data(), &value, sizeof(int), cudaMemcpyHostToDevice, stream);
  };
  ASSERT_EQ(copy(), cudaSuccess);
  EXPECT_EQ(fake_cuda_misuses().pageable_copies, 0U);
  Gate gate;
  gate.hold(stream);
  value = 6;
  ASSERT_EQ(copy(), cudaSuccess);
  value = 7;
  EXPECT_EQ(fake_cuda_misuses().pageable_copies, 1U);
  gate.open();
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(device.read(), std::vector<int>{6});
}

TEST_F(MemoryTest, ACopysKindMustFitItsPointers) {
  const TestBuffer<int> device(4), other(4);
  int host[4] = {1, 2, 3, 4};
  EXPECT_EQ(cudaMemcpy(device.data(), host, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data(), host, 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, device.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data(), host, 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(other.data(), device.data(), 16, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(other.read(), (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(MemoryTest, ACopyMustStayInsideItsAllocation) {
  const TestBuffer<int> device(4);
  const std::vector<int> host(8);
  EXPECT_EQ(cudaMemcpy(device.data(), host.data(), 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data() + 2, host.data(), 9, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device.data() + 2, host.data(), 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(device.data() + 2, 0, 9), cudaErrorInvalidValue);
}

TEST_F(MemoryTest, FillsBytes) {
  const TestStream stream;
  const TestBuffer<std::uint8_t> device(10);
  ASSERT_EQ(cudaMemsetAsync(device.data(), 0, 10, stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device.data() + 2, 3, 2, stream), cudaSuccess);
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(device.read(), (std::vector<std::uint8_t>{0, 0, 3, 3, 0, 0, 0, 0, 0, 0}));
}

TEST_F(MemoryTest, TellsWhatAPointerIs) {
  const TestBuffer<int> device(4);
  int host = 0;
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, device.data() + 1), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, device.data() + 4), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &host), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

#ifdef __SANITIZE_ADDRESS__
TEST(MemoryDeathTest, TheAddressSanitizerGuardsTheEndsOfDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto overrun = [] {
    char* address = nullptr;
    cudaMalloc(reinterpret_cast<void**>(&address), 1001);
    static_cast<volatile char*>(address)[1001] = 0;
  };
  EXPECT_DEATH(overrun(), "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace fake_cuda_test
