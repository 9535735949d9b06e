#include "tests/fake_cuda/block_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_cuda/emulated_kernels.h"
#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace fake_cuda_test {
namespace {

using BlockRunnerTest = FakeCuda;

TEST_F(BlockRunnerTest, PlacesEveryThreadOfEveryBlock) {
  const TestBuffer<int> out(std::size_t{2} * 3 * 2 * 4 * 2 * 3 * 12);
  ASSERT_EQ(launch_positions({2, 3, 2}, {4, 2, 3}, out.data(), nullptr), cudaSuccess);
  const std::vector<int> values = out.read();
  std::size_t at = 0;
  for (int block = 0; block < 12; ++block) {
    for (int thread = 0; thread < 24; ++thread) {
      const std::vector<int> expected = {
          block % 2, block / 2 % 3, block / 6, thread % 4, thread / 4 % 2, thread / 8, 2, 3, 2, 4, 2, 3};
      ASSERT_TRUE(
          std::equal(expected.begin(), expected.end(), values.begin() + static_cast<std::ptrdiff_t>(at)));
      at += 12;
    }
  }
}

TEST_F(BlockRunnerTest, SumsABlockByShufflesAndABarrier) {
  for (const int threads : {32, 64, 256, 1024}) {
    std::vector<float> x(static_cast<std::size_t>(3 * threads));
    std::iota(x.begin(), x.end(), 0.0F);
    const TestBuffer<float> in(x), sums(3);
    ASSERT_EQ(launch_block_sum(3, threads, in.data(), sums.data(), nullptr), cudaSuccess);
    const std::vector<float> result = sums.read();
    for (int block = 0; block < 3; ++block) {
      const auto first = x.begin() + block * threads;
      EXPECT_EQ(result[static_cast<std::size_t>(block)], std::accumulate(first, first + threads, 0.0F))
          << threads;
    }
  }
}

TEST_F(BlockRunnerTest, ABarrierLetsThreadsSeeEachOthersValues) {
  std::vector<int> x(5 * 96), expected(x.size());
  std::iota(x.begin(), x.end(), 0);
  for (int i = 0; i < 5 * 96; ++i) expected[static_cast<std::size_t>(i)] = i / 96 * 96 + 95 - i % 96;
  const TestBuffer<int> in(x), out(x.size());
  ASSERT_EQ(launch_reverse(5, 96, in.data(), out.data(), 96 * sizeof(int), nullptr), cudaSuccess);
  EXPECT_EQ(out.read(), expected);
}

TEST_F(BlockRunnerTest, ShufflesAsAWarpDoes) {
  const TestBuffer<int> out(32);
  ASSERT_EQ(launch_shuffles(out.data(), nullptr), cudaSuccess);
  const std::vector<int> values = out.read();
  for (int lane = 0; lane < 32; ++lane) {
    const int in_group = lane % 8;
    const int up = std::max(in_group - 1, 0), down = std::min(in_group + 1, 7), other = in_group ^ 1;
    EXPECT_EQ(values[static_cast<std::size_t>(lane)],
              (((lane / 8 * 8 + 3) * 10 + up) * 10 + down) * 10 + other);
  }
}

using LaunchNeighbour = cudaError_t (*)(int, int, bool, const int*, int*, cudaStream_t);

// Which of `blocks` blocks of 64 threads compute what the kernel would on any card, had it its barrier.
// `group`: how many threads share values.
std::vector<bool> right_blocks(LaunchNeighbour launch_kernel, int group, bool synchronises, int blocks) {
  const int threads = 64;
  std::vector<int> x(static_cast<std::size_t>(blocks * threads));
  std::iota(x.begin(), x.end(), 1);
  const TestBuffer<int> in(x), out(x.size());
  EXPECT_EQ(launch_kernel(blocks, threads, synchronises, in.data(), out.data(), nullptr), cudaSuccess);
  const std::vector<int> values = out.read();
  std::vector<bool> right(static_cast<std::size_t>(blocks), true);
  for (int i = 0; i < blocks * threads; ++i) {
    const int expected = i % group == 0 ? i + 1 : i;
    if (values[static_cast<std::size_t>(i)] != expected) right[static_cast<std::size_t>(i / threads)] = false;
  }
  return right;
}

class ThreadOrderTest : public FakeCuda {
 protected:
  static void set_order(const char* order) {
    setenv("STOWAGE_FAKE_CUDA_ORDER", order, 1);
    fake_cuda_reset();
    unsetenv("STOWAGE_FAKE_CUDA_ORDER");
  }
};

TEST_F(ThreadOrderTest, AMissingBarrierShowsInTwoOfThreeOrders) {
  for (const auto& [kernel, group] :
       {std::pair{&launch_neighbour, 64}, std::pair{&launch_neighbour_in_warp, 32}}) {
    for (const bool synchronises : {true, false}) {
      set_order("forward");
      EXPECT_EQ(right_blocks(kernel, group, synchronises, 2), (std::vector<bool>{true, true}));
      for (const char* order : {"reversed", "random"}) {
        set_order(order);
        EXPECT_EQ(right_blocks(kernel, group, synchronises, 2), std::vector<bool>(2, synchronises)) << order;
      }
    }
  }
}

TEST_F(ThreadOrderTest, BlocksTakeTurnsAtTheOrders) {
  for (const auto& expected : {std::vector<bool>{true, false, false, true},
                               {false, false, true, false},
                               {false, true, false, false},
                               {true, false, false, true}}) {
    EXPECT_EQ(right_blocks(launch_neighbour, 64, false, 4), expected);
  }
}

TEST_F(ThreadOrderTest, ShufflesAndBarriersWorkInEveryOrder) {
  for (const char* order : {"forward", "reversed", "random"}) {
    set_order(order);
    std::vector<float> x(4 * 256);
    std::iota(x.begin(), x.end(), 0.0F);
    const TestBuffer<float> in(x), sums(4);
    ASSERT_EQ(launch_block_sum(4, 256, in.data(), sums.data(), nullptr), cudaSuccess);
    for (std::size_t block = 0; block < 4; ++block) {
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(block * 256);
      EXPECT_EQ(sums.read()[block], std::accumulate(first, first + 256, 0.0F)) << order;
    }
  }
}

// A kernel that counts on zeros there must show.
TEST_F(BlockRunnerTest, SharedMemoryIsNotZeroAtFirst) {
  const TestBuffer<unsigned> out(4);
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_EQ(launch_fresh_shared(out.data(), nullptr), cudaSuccess);
    EXPECT_EQ(out.read(), std::vector<unsigned>(4, 0xffffffffU)) << launch;
  }
}

TEST(BlockRunnerDeathTest, ABarrierThatSomeThreadsMissEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    launch_half_a_barrier(nullptr);
    cudaDeviceSynchronize();
  };
  EXPECT_DEATH(run(), "__syncthreads\\(\\) after a thread of the block has returned");
}

#ifdef __SANITIZE_ADDRESS__
TEST(BlockRunnerDeathTest, TheAddressSanitizerSeesKernelsOverrunDeviceAndSharedMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](int in_count, std::size_t shared_bytes) {
    const TestBuffer<int> in(static_cast<std::size_t>(in_count)), out(32);
    launch_reverse(1, 32, in.data(), out.data(), shared_bytes, nullptr);
    cudaDeviceSynchronize();
  };
  EXPECT_DEATH(run(31, 128), "heap-buffer-overflow");
  EXPECT_DEATH(run(32, 124), "heap-buffer-overflow");
}
#endif

#ifdef __SANITIZE_THREAD__
TEST(BlockRunnerDeathTest, TheThreadSanitizerSeesAKernelThatACopyDidNotWaitFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto race = [](bool wait) {
    const TestStream first, second;
    const TestEvent event;
    const TestBuffer<float> x(64), y(64);
    float* pinned = nullptr;
    cudaMallocHost(reinterpret_cast<void**>(&pinned), 256);
    launch_block_sum(1, 64, x.data(), y.data(), first);
    cudaEventRecord(event, first);
    if (wait) cudaStreamWaitEvent(second, event, 0);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(50));  // the kernel has run by now, but nobody asked
    cudaMemcpyAsync(pinned, y.data(), 256, cudaMemcpyDeviceToHost, second);
    second.synchronise();
    std::fputs("done", stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(race(false), testing::ExitedWithCode(0), "data race");
  EXPECT_EXIT(race(true), testing::ExitedWithCode(0), "^done$");
}
#endif

}  // namespace
}  // namespace fake_cuda_test
