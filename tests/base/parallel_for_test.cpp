#include "src/base/parallel_for.h"
#include "tests/support/printed_name.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace stowage {
namespace {

using Chunks = std::vector<std::pair<std::int64_t, std::int64_t>>;

Chunks chunks_of(std::int64_t count, std::int64_t chunk) {
  std::mutex mutex;
  Chunks chunks;
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    std::scoped_lock lock(mutex);
    chunks.emplace_back(begin, end);
  });
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

class ParallelFor : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_parallel_threads(GetParam()); }
  void TearDown() override { set_parallel_threads(0); }
};

TEST_P(ParallelFor, CutsAtMultiplesOfTheChunkWhateverTheThreads) {
  EXPECT_EQ(chunks_of(10, 4), (Chunks{{0, 4}, {4, 8}, {8, 10}}));
  EXPECT_EQ(chunks_of(8, 4), (Chunks{{0, 4}, {4, 8}}));
  EXPECT_EQ(chunks_of(3, 100), (Chunks{{0, 3}}));
  EXPECT_EQ(chunks_of(0, 4), Chunks{});
  EXPECT_EQ(chunks_of(2, 0), (Chunks{{0, 1}, {1, 2}}));
}

TEST_P(ParallelFor, RunsEachElementOnce) {
  std::vector<std::atomic<int>> seen(1001);
  parallel_for(1001, 7, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& count) { return count == 1; }));
}

TEST_P(ParallelFor, SeesAllEffectsOnReturn) {
  std::vector<int> values(1000, 0);
  for (int round = 1; round <= 20; ++round) {
    parallel_for(1000, 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++values[static_cast<std::size_t>(i)];
    });
    ASSERT_EQ(values, std::vector<int>(1000, round));
  }
}

TEST_P(ParallelFor, Nests) {
  std::atomic<int> count = 0;
  parallel_for(16, 1, [&](std::int64_t, std::int64_t) {
    parallel_for(16, 1, [&](std::int64_t, std::int64_t) {
      parallel_for(4, 1, [&](std::int64_t, std::int64_t) { ++count; });
    });
  });
  EXPECT_EQ(count, 16 * 16 * 4);
}

// A thread that waits for an inner loop must not take up another chunk of the outer one meanwhile.
// Sleeping lets every thread run out of work of its own and look for others'.
TEST_P(ParallelFor, AThreadInsideALoopEntersNoOtherChunkOfIt) {
  std::atomic<bool> entered_twice = false;
  for (int round = 0; round < 5; ++round) {
    parallel_for(64, 1, [&](std::int64_t, std::int64_t) {
      thread_local bool inside = false;
      if (inside) entered_twice = true;
      inside = true;
      parallel_for(8, 1, [](std::int64_t begin, std::int64_t) {
        std::this_thread::sleep_for(std::chrono::microseconds(10 * begin));
      });
      inside = false;
    });
  }
  EXPECT_FALSE(entered_twice);
}

TEST_P(ParallelFor, ServesSeveralCallersAtOnce) {
  std::atomic<int> count = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        parallel_for(20, 1, [&](std::int64_t, std::int64_t) { ++count; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(count, 4 * 50 * 20);
}

TEST_P(ParallelFor, RethrowsAndGoesOn) {
  auto fail = [](std::int64_t begin, std::int64_t) {
    if (begin == 30) throw std::runtime_error("chunk 30");
  };
  EXPECT_THROW(parallel_for(100, 10, fail), std::runtime_error);
  EXPECT_THROW(parallel_for(40, 40, [](std::int64_t, std::int64_t) { throw std::logic_error("one"); }),
               std::logic_error);
  EXPECT_EQ(chunks_of(20, 10).size(), 2U);
}

TEST_P(ParallelFor, UsesNoMoreThreadsThanAllowed) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 20; ++round) {
    parallel_for(100, 1, [&](std::int64_t, std::int64_t) {
      std::scoped_lock lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  }
  EXPECT_LE(threads.size(), static_cast<std::size_t>(GetParam()));
  EXPECT_EQ(parallel_threads(), GetParam());
}

// Each chunk waits for another thread to come to the loop, within reason.
TEST_P(ParallelFor, SharesALoopAmongThreads) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  auto arrived = [&] {
    std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    return threads.size();
  };
  const std::size_t wanted = GetParam() == 1 ? 1 : 2;
  for (int round = 0; round < 1000 && arrived() < wanted; ++round) {
    parallel_for(16, 1, [&](std::int64_t, std::int64_t) {
      for (int patience = 0; patience < 1000 && arrived() < wanted; ++patience) std::this_thread::yield();
    });
  }
  EXPECT_GE(threads.size(), wanted);
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, testing::Values(1, 2, 3, 4), stowage::test::printed_name);

TEST(ParallelThreads, ZeroMeansAllCores) {
  set_parallel_threads(0);
  EXPECT_EQ(parallel_threads(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

#ifndef __SANITIZE_THREAD__  // it has a thread of its own, and loops run on others than oneTBB's
int threads_of_this_process() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<int>(std::distance(begin(threads), end(threads)));
}

// Made before the first loop, destroyed after the loops' threads: the process ends with how many more it has.
struct ThreadsLeft {
  ThreadsLeft() = default;
  ThreadsLeft(const ThreadsLeft&) = delete;
  ThreadsLeft& operator=(const ThreadsLeft&) = delete;
  ~ThreadsLeft() { ::_exit(threads_of_this_process() - before); }
  const int before = threads_of_this_process();
};

[[noreturn]] void end_after_loops() {
  static const ThreadsLeft counted_last;
  set_parallel_threads(4);
  for (int round = 0; round < 20; ++round)
    parallel_for(64, 1, [](std::int64_t, std::int64_t) { std::this_thread::yield(); });
  std::exit(0);
}

TEST(ParallelForDeathTest, LeavesNoThreadToTheEndOfTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_after_loops(), testing::ExitedWithCode(0), "");
}

#ifndef __SANITIZE_ADDRESS__  // in the child it misses what the parent's threads hold
TEST(ParallelForDeathTest, LetsAForkedChildEnd) {
  set_parallel_threads(4);
  EXPECT_EQ(chunks_of(8, 1).size(), 8U);
  const pid_t child = ::fork();
  if (child == 0) std::exit(7);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 7);
  set_parallel_threads(0);
}
#endif
#endif

}  // namespace
}  // namespace stowage
