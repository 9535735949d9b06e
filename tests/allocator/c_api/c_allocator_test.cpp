// libstowage_allocator.so as PyTorch loads it: by its path and its functions' names, over the fakes of CUDA.
// Function types are those that torch/csrc/cuda calls.
#include "stowage/c_allocator.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <utility>

#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace {

using fake_cuda_test::Gate;
using fake_cuda_test::TestStream;
using testing::HasSubstr;

using MempoolId = std::pair<unsigned long long, unsigned long long>;  // c10::cuda::MempoolId_t
using Filter = std::function<bool(cudaStream_t)>;

template <class Function>
Function* function(const char* name) {
  static void* const library = dlopen(STOWAGE_ALLOCATOR_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  EXPECT_NE(found, nullptr) << name;
  return found;
}

// The library keeps its devices until the process ends, so the card is not reset between tests; each test
// uses streams of its own and frees what it takes.
class CAllocatorTest : public testing::Test {
 protected:
  static constexpr std::size_t mib = std::size_t{1} << 20;
  void* (*const malloc)(std::size_t, int,
                        cudaStream_t) = function<void*(std::size_t, int, cudaStream_t)>("stowage_malloc");
  void (*const free)(void*, std::size_t, int,
                     cudaStream_t) = function<void(void*, std::size_t, int, cudaStream_t)>("stowage_free");
  void (*const record_stream)(void*,
                              cudaStream_t) = function<void(void*, cudaStream_t)>("stowage_record_stream");
  void (*const reset)() = function<void()>("stowage_empty_cache");
  void (*const memory_fraction)(double, int) = function<void(double, int)>("stowage_set_memory_fraction");
  void (*const begin_pool)(int, MempoolId,
                           Filter) = function<void(int, MempoolId, Filter)>("stowage_begin_allocate_to_pool");
  void (*const end_pool)(int, MempoolId) = function<void(int, MempoolId)>("stowage_end_allocate_to_pool");
  void (*const release_pool)(int, MempoolId) = function<void(int, MempoolId)>("stowage_release_pool");
  const char* (*const last_error)() = function<const char*()>("stowage_last_error");
  void (*const clear_error)() = function<void()>("stowage_clear_error");

  void SetUp() override {
    clear_error();
    function<int(int, std::uint64_t)>("stowage_set_limit")(0, STOWAGE_NO_LIMIT);
  }
  stowage_statistics statistics() const {
    stowage_statistics found{};
    found.struct_bytes = sizeof found;
    EXPECT_EQ(function<int(int, stowage_statistics*)>("stowage_get_statistics")(0, &found), STOWAGE_OK);
    return found;
  }
  void forget(cudaStream_t stream) const {
    EXPECT_EQ(function<int(int, void*)>("stowage_forget_stream")(0, stream), STOWAGE_OK);
  }
};

TEST_F(CAllocatorTest, ServesTheDefaultStreamAndOthers) {
  const TestStream stream;
  for (const cudaStream_t on : {cudaStream_t{nullptr}, static_cast<cudaStream_t>(stream)}) {
    void* const block = malloc(5000, 0, on);
    ASSERT_NE(block, nullptr) << last_error();
    EXPECT_EQ(cudaMemsetAsync(block, 7, 5000, on), cudaSuccess);
    unsigned char read = 0;
    EXPECT_EQ(cudaMemcpyAsync(&read, static_cast<char*>(block) + 4999, 1, cudaMemcpyDeviceToHost, on),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(on), cudaSuccess);
    EXPECT_EQ(read, 7);
    free(block, 5000, 0, on);
    EXPECT_EQ(malloc(5000, 0, on), block);
    free(block, 5000, 0, on);
  }
  EXPECT_GE(statistics().hits, 2u);
  EXPECT_EQ(statistics().allocated, 0u);
  EXPECT_STREQ(last_error(), "");
  forget(stream);
}

TEST_F(CAllocatorTest, RefusesStreamsThatDifferByThread) {
  EXPECT_EQ(malloc(1, 0, cudaStreamPerThread), nullptr);
  EXPECT_THAT(last_error(), HasSubstr("cudaStreamPerThread"));
}

TEST_F(CAllocatorTest, RefusesACardThatIsNotThere) {
  EXPECT_EQ(malloc(1, 1, nullptr), nullptr);
  EXPECT_THAT(last_error(), HasSubstr("no CUDA device 1"));
}

TEST_F(CAllocatorTest, OtherStreamsWaitForWhatWasFreed) {
  const TestStream first, second;
  function<int(int, std::uint64_t)>("stowage_set_limit")(0, 32 * mib);
  reset();
  Gate gate;
  void* const block = malloc(32 * mib, 0, first);
  ASSERT_NE(block, nullptr) << last_error();
  gate.hold(first);
  EXPECT_EQ(cudaMemsetAsync(block, 1, 32 * mib, first), cudaSuccess);
  free(block, 32 * mib, 0, first);
  void* const again = malloc(32 * mib, 0, second);
  ASSERT_EQ(again, block) << last_error();
  EXPECT_EQ(cudaMemsetAsync(again, 2, 32 * mib, second), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);  // behind the gate
  gate.open();
  EXPECT_EQ(second.synchronise(), cudaSuccess);
  EXPECT_EQ(static_cast<unsigned char*>(again)[mib], 2);
  free(again, 32 * mib, 0, second);
  forget(first);
  forget(second);
}

TEST_F(CAllocatorTest, RecordedStreamsHoldTheMemory) {
  const TestStream first, second;
  function<int(int, std::uint64_t)>("stowage_set_limit")(0, 32 * mib);
  reset();
  void* const block = malloc(32 * mib, 0, first);
  ASSERT_NE(block, nullptr) << last_error();
  Gate gate;
  gate.hold(second);
  EXPECT_EQ(cudaMemsetAsync(block, 1, 32 * mib, second), cudaSuccess);
  record_stream(block, second);
  free(block, 32 * mib, 0, first);
  void* const again = malloc(32 * mib, 0, first);
  ASSERT_EQ(again, block) << last_error();
  EXPECT_EQ(cudaMemsetAsync(again, 2, 32 * mib, first), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(first), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(first.synchronise(), cudaSuccess);
  EXPECT_EQ(static_cast<unsigned char*>(again)[mib], 2);
  free(again, 32 * mib, 0, first);
  forget(first);
  forget(second);
}

TEST_F(CAllocatorTest, OutOfMemoryIsNull) {
  memory_fraction(0.01, 0);  // of 4 GiB
  EXPECT_EQ(malloc(64 * mib, 0, nullptr), nullptr);
  EXPECT_THAT(last_error(), HasSubstr("a limit of 42949672"));
  void* const block = malloc(16 * mib, 0, nullptr);
  EXPECT_NE(block, nullptr);
  free(block, 16 * mib, 0, nullptr);
}

TEST_F(CAllocatorTest, PoolsAreBegunAsTorchDoes) {
  const TestStream captured;
  const MempoolId pool{0, 1};
  begin_pool(0, pool, [&](cudaStream_t stream) { return stream == captured; });
  EXPECT_STREQ(last_error(), "");
  void* const inside = malloc(1000, 0, captured);
  void* const beside = malloc(1000, 0, nullptr);
  EXPECT_EQ(statistics().private_pools, 1u);
  free(inside, 1000, 0, captured);
  end_pool(0, pool);
  void* const outside = malloc(1000, 0, captured);
  EXPECT_NE(outside, inside);
  release_pool(0, pool);
  EXPECT_STREQ(last_error(), "");
  EXPECT_EQ(statistics().private_pools, 0u);
  free(beside, 1000, 0, nullptr);
  free(outside, 1000, 0, captured);
  forget(captured);
}

TEST_F(CAllocatorTest, PoolsAreBegunFromC) {
  const TestStream captured;
  const auto begin = function<int(int, stowage_pool, int (*)(void*, void*), void*)>("stowage_pool_begin");
  const auto wants = [](void* stream, void* context) { return stream == context ? 1 : 0; };
  EXPECT_EQ(begin(0, {7, 7}, wants, captured), STOWAGE_OK);
  EXPECT_EQ(begin(0, {7, 7}, nullptr, captured), STOWAGE_INVALID_INPUT);
  void* const inside = malloc(1000, 0, captured);
  EXPECT_EQ(statistics().private_pools, 1u);
  free(inside, 1000, 0, captured);
  end_pool(0, {7, 7});
  release_pool(0, {7, 7});
  EXPECT_EQ(statistics().private_pools, 0u);
  forget(captured);
}

// As torch.cuda.graph does it, in its default mode: any call that may wait, made on any thread, would end the
// capture.
TEST_F(CAllocatorTest, WorksWithinACapture) {
  const TestStream captured, side, beside;
  const MempoolId pool{0, 2};
  function<int(int, std::uint64_t)>("stowage_set_limit")(0, 320 * mib);
  reset();
  void* const before = malloc(24 * mib, 0, captured);
  void* const elsewhere = malloc(24 * mib, 0, beside);
  Gate gate;
  gate.hold(beside);
  free(elsewhere, 24 * mib, 0, beside);  // its stream is still at work
  begin_pool(0, pool, [](cudaStream_t stream) {
    cudaStreamCaptureStatus status{};
    EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    return status == cudaStreamCaptureStatusActive;
  });
  ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), cudaSuccess);
  // Another stream looks for memory before the captured one has asked for any: that is left alone.
  void* const looked_for = malloc(20 * mib, 0, side);
  free(looked_for, 20 * mib, 0, side);
  free(before, 24 * mib, 0, captured);

  void* const inside = malloc(100 * mib, 0, captured);  // mapped anew
  ASSERT_NE(inside, nullptr) << last_error();
  EXPECT_EQ(cudaMemsetAsync(inside, 1, 100 * mib, captured), cudaSuccess);
  record_stream(inside, side);
  free(inside, 100 * mib, 0, captured);
  void* const again = malloc(100 * mib, 0, captured);
  ASSERT_NE(again, nullptr) << last_error();
  void* const other = malloc(16 * mib, 0, beside);
  EXPECT_NE(other, before);  // the capture's stream may still use that
  free(other, 16 * mib, 0, beside);
  gate.open();
  EXPECT_EQ(malloc(4096 * mib, 0, side), nullptr);  // after all rungs of the ladder
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
  end_pool(0, pool);
  clear_error();

  free(again, 100 * mib, 0, captured);
  release_pool(0, pool);
  EXPECT_STREQ(last_error(), "");
  EXPECT_EQ(statistics().private_pools, 0u);
  reset();
  EXPECT_EQ(statistics().reserved, 0u);  // all of it is free for others
  for (const cudaStream_t stream : {cudaStream_t{captured}, cudaStream_t{side}, cudaStream_t{beside}})
    forget(stream);
}

}  // namespace
