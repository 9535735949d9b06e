// The C interface in several threads, and in the children of a fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/allocator/c_api/allocators_fixture.h"

namespace stowage::c_api {
namespace {

TEST_F(AllocatorsTest, ThreadsShareIt) {
  Allocators allocators(
      [](int) {
        return std::make_unique<TestDevice>(
            open_simulated_device({.capacity = capacity, .check_accesses = false}));
      },
      Environment{.history = "100"});
  std::vector<std::thread> threads;
  for (std::uintptr_t number = 1; number <= 4; ++number)
    threads.emplace_back([&, number] {
      void* const stream = reinterpret_cast<void*>(number);
      for (int i = 0; i < 500; ++i) {
        if (i == 100 && number == 1)
          allocators.begin_pool(0, {1, 1}, [=](void* one) { return one == stream; });
        if (i == 400 && number == 1) allocators.end_pool(0, {1, 1});
        void* const block = allocators.allocate(1000 + i, 0, stream);
        ASSERT_NE(block, nullptr);
        allocators.record_stream(block, reinterpret_cast<void*>(number % 4 + 1));
        if (i % 100 == 50) statistics(allocators);
        allocators.release(block, 0, stream);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(statistics(allocators).allocated, 0u);
  EXPECT_EQ(statistics(allocators).allocations, 2000u);
}

// The child's answer is its exit code.
template <class Child>
int in_a_child(Child child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(AllocatorsTest, AChildOfAForkHasNoDevice) {
  Allocators allocators = make();
  void* const block = allocators.allocate(1000, 0, a);
  EXPECT_EQ(in_a_child([&] {
              allocators.release(block, 0, a);  // nothing
              if (error() != "") return 1;
              if (allocators.allocate(1000, 0, a) != nullptr) return 2;
              if (error().find("spawn") == std::string::npos) return 3;
              if (allocators.reset_peaks(0) != STOWAGE_AFTER_FORK) return 4;
              return 0;
            }),
            0);
  EXPECT_EQ(statistics(allocators).allocated, 1024u);
}

// The thread that is in a call at the time of a fork holds its locks in the child for ever.
TEST_F(AllocatorsTest, AForkDuringAnotherThreadsFirstCallsHangsNoChild) {
  Allocators allocators = make();
  std::atomic<bool> done = false;
  std::atomic<int> calls = 0;
  std::thread other([&] {
    while (!done) {
      allocators.set_limit(STOWAGE_ALL_DEVICES, 1_MiB);
      ++calls;
    }
  });
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    const int before = calls;
    while (calls == before) std::this_thread::yield();
    EXPECT_EQ(in_a_child([&] {
                alarm(60);  // a child that hangs
                const int status = allocators.set_history(1);
                return status == STOWAGE_OK || status == STOWAGE_AFTER_FORK ? 0 : 1;
              }),
              0);
  }
  done = true;
  other.join();
}

TEST_F(AllocatorsTest, AForkBeforeTheFirstUseDoesNoHarm) {
  Allocators allocators = make();
  EXPECT_EQ(in_a_child([&] { return allocators.allocate(1000, 0, a) == nullptr ? 1 : 0; }), 0);
}

}  // namespace
}  // namespace stowage::c_api
