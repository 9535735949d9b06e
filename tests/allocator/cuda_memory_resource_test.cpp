// The memory resource against the concepts of the installed CCCL, against what those since CCCL 3.1 ask for
// (written out here, as documented; the toolkit's own headers may be older), and over the fakes of CUDA.
#include "stowage/cuda_memory_resource.h"

#include <gtest/gtest.h>

#include <concepts>

#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace stowage {
namespace {

namespace mr = cuda::mr;

// https://nvidia.github.io/cccl/libcudacxx/extended_api/memory_resource/resource.html
template <class Resource>
concept NewerSynchronousResource = std::equality_comparable<Resource> &&
    requires(Resource& resource, void* pointer, std::size_t bytes, std::size_t alignment) {
  { resource.allocate_sync(bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate_sync(pointer, bytes, alignment) } -> std::same_as<void>;
};
template <class Resource>
concept NewerResource = NewerSynchronousResource<Resource> &&
    requires(Resource& resource, void* pointer, std::size_t bytes, std::size_t alignment,
             cuda::stream_ref stream) {
  { resource.allocate(stream, bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate(stream, pointer, bytes, alignment) } -> std::same_as<void>;
};
static_assert(NewerResource<CudaMemoryResource>);
static_assert(std::copyable<CudaMemoryResource>);
static_assert(cuda::has_property<CudaMemoryResource, mr::device_accessible>);
static_assert(!cuda::has_property<CudaMemoryResource, mr::host_accessible>);

#if CCCL_VERSION < 3001000
static_assert(mr::resource<CudaMemoryResource>);
static_assert(mr::resource_with<CudaMemoryResource, mr::device_accessible>);
static_assert(mr::async_resource<CudaMemoryResource>);
static_assert(mr::async_resource_with<CudaMemoryResource, mr::device_accessible>);
static_assert(!mr::async_resource_with<CudaMemoryResource, mr::host_accessible>);
#else
static_assert(mr::synchronous_resource<CudaMemoryResource>);
static_assert(mr::synchronous_resource_with<CudaMemoryResource, mr::device_accessible>);
static_assert(mr::resource<CudaMemoryResource>);
static_assert(mr::resource_with<CudaMemoryResource, mr::device_accessible>);
#endif

using fake_cuda_test::Gate;
using fake_cuda_test::TestStream;

class CudaMemoryResourceTest : public fake_cuda_test::FakeCuda {
 protected:
  static constexpr std::size_t capacity = 32_MiB;
  void TearDown() override {}  // the device is still open
  std::unique_ptr<Device> device = open_cuda_device({.scratch = 0});
  CachingAllocator allocator{*device, {.limit = capacity}};
};

TEST_F(CudaMemoryResourceTest, ServesBothGenerations) {
  const TestStream made;
  const cuda::stream_ref stream(made);
  CudaMemoryResource resource(*device, allocator);
  void* const one = resource.allocate_async(1000, 256, stream);
  void* const two = resource.allocate(stream, 1000, 256);
  void* const three = resource.allocate(1000, 256);
  void* const four = resource.allocate_sync(1000, 256);
  EXPECT_EQ(allocator.statistics().pools[0].requested, 4000u);
  for (void* const block : {one, two, three, four})
    EXPECT_EQ(cudaMemsetAsync(block, 1, 1000, made), cudaSuccess);
  resource.deallocate_async(one, 1000, 256, stream);
  resource.deallocate(stream, two, 1000, 256);
  EXPECT_EQ(made.synchronise(), cudaSuccess);
  resource.deallocate(three, 1000, 256);
  resource.deallocate_sync(four, 1000, 256);
  EXPECT_EQ(allocator.statistics().pools[0].allocated, 0u);
  EXPECT_THROW(resource.deallocate(three, 1000, 256), InvalidInput);
}

TEST_F(CudaMemoryResourceTest, CopiesAreEqual) {
  const CudaMemoryResource one(*device, allocator), other(*device, allocator);
  const CudaMemoryResource copy = one;
  EXPECT_TRUE(copy == one);
  EXPECT_TRUE(other != one);
}

#if CCCL_VERSION < 3001000
TEST_F(CudaMemoryResourceTest, IsTypeErased) {
  const TestStream made;
  CudaMemoryResource resource(*device, allocator);
  mr::async_resource_ref<mr::device_accessible> reference = resource;
  void* const block = reference.allocate_async(1000, 256, cuda::stream_ref(made));
  EXPECT_NE(block, nullptr);
  reference.deallocate_async(block, 1000, 256, cuda::stream_ref(made));
  EXPECT_EQ(allocator.statistics().pools[0].allocated, 0u);
}
#endif

TEST_F(CudaMemoryResourceTest, StreamsWaitForEachOther) {
  const TestStream made_first, made_second;
  const cuda::stream_ref first(made_first), second(made_second);
  CudaMemoryResource resource(*device, allocator);
  Gate gate;
  void* const block = resource.allocate_async(capacity, first);
  gate.hold(made_first);
  EXPECT_EQ(cudaMemsetAsync(block, 1, capacity, made_first), cudaSuccess);
  resource.deallocate_async(block, capacity, first);
  void* const again = resource.allocate(second, capacity);
  ASSERT_EQ(again, block);
  EXPECT_EQ(cudaMemsetAsync(again, 2, capacity, made_second), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(made_second), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(made_second.synchronise(), cudaSuccess);
  EXPECT_EQ(static_cast<unsigned char*>(again)[capacity - 1], 2);
  resource.deallocate(second, again, capacity);
}

TEST_F(CudaMemoryResourceTest, RunsOutAsTheAllocatorDoes) {
  CudaMemoryResource resource(*device, allocator);
  EXPECT_THROW(resource.allocate_sync(capacity + 1), OutOfMemory);
  EXPECT_THROW(resource.allocate_sync(1, 4096), InvalidInput);
}

}  // namespace
}  // namespace stowage
