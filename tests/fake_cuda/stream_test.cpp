#include "tests/fake_cuda/stream.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace fake_cuda_test {
namespace {

using StreamTest = FakeCuda;

// Host work that notes its number.
struct Noted {
  std::vector<int>* order;
  int number;
  static void run(void* self) {
    const auto& noted = *static_cast<Noted*>(self);
    noted.order->push_back(noted.number);
  }
};

TEST_F(StreamTest, WorkRunsInOrder) {
  const TestStream stream;
  std::vector<int> order;
  std::vector<Noted> work;
  for (int i = 0; i < 100; ++i) work.push_back({&order, i});
  for (Noted& noted : work) ASSERT_EQ(cudaLaunchHostFunc(stream, Noted::run, &noted), cudaSuccess);
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(StreamTest, StreamsDoNotWaitForEachOther) {
  const TestStream held, free;
  Gate gate;
  gate.hold(held);
  std::vector<int> order;
  Noted noted{&order, 1};
  ASSERT_EQ(cudaLaunchHostFunc(free, Noted::run, &noted), cudaSuccess);
  ASSERT_EQ(free.synchronise(), cudaSuccess);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_EQ(cudaStreamQuery(held), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(free), cudaSuccess);
  gate.open();
  EXPECT_EQ(held.synchronise(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(held), cudaSuccess);
}

TEST_F(StreamTest, AnEventOrdersTwoStreams) {
  const TestStream first, second;
  const TestEvent event;
  Gate gate;
  std::vector<int> order;
  Noted one{&order, 1}, two{&order, 2};
  gate.hold(first);
  ASSERT_EQ(cudaLaunchHostFunc(first, Noted::run, &one), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(second, Noted::run, &two), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  gate.open();
  ASSERT_EQ(second.synchronise(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// A wait is for the record before the call, whatever is recorded after it.
TEST_F(StreamTest, AWaitTakesTheLatestRecordAtItsCall) {
  const TestStream recorder, held, waiter;
  const TestEvent event;
  Gate gate;
  ASSERT_EQ(cudaEventRecord(event, recorder), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(waiter, event, 0), cudaSuccess);
  gate.hold(held);
  ASSERT_EQ(cudaEventRecord(event, held), cudaSuccess);
  EXPECT_EQ(waiter.synchronise(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(StreamTest, AnEventNeverRecordedHoldsNobody) {
  const TestStream stream;
  const TestEvent event;
  EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  EXPECT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(StreamTest, AWaitOutlivesItsEvent) {
  const TestStream first, second;
  Gate gate;
  gate.hold(first);
  {
    const TestEvent event;
    ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(second.synchronise(), cudaSuccess);
}

TEST_F(StreamTest, TimeRunsFromRecordToRecord) {
  const TestStream stream;
  const TestEvent from, to, untimed{cudaEventDisableTiming};
  Gate gate;
  float milliseconds = -1;
  ASSERT_EQ(cudaEventRecord(from, stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaErrorInvalidResourceHandle);
  gate.hold(stream);
  ASSERT_EQ(cudaEventRecord(to, stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaErrorNotReady);
  gate.open();
  ASSERT_EQ(cudaEventSynchronize(to), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  ASSERT_EQ(cudaEventRecord(untimed, stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, untimed), cudaErrorInvalidResourceHandle);
}

TEST_F(StreamTest, TheDefaultStreamWaitsForBlockingStreamsAlone) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  const TestStream aside;
  Gate gate, side_gate;
  gate.hold(blocking);
  side_gate.hold(aside);
  std::vector<int> order;
  Noted noted{&order, 1};
  ASSERT_EQ(cudaLaunchHostFunc(nullptr, Noted::run, &noted), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_EQ(cudaStreamQuery(aside), cudaErrorNotReady);
  side_gate.open();
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  EXPECT_EQ(aside.synchronise(), cudaSuccess);
}

TEST_F(StreamTest, ADestroyedStreamStillDoesItsWork) {
  Gate gate;
  std::atomic<int> done = 0;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  gate.hold(stream);
  ASSERT_EQ(cudaLaunchHostFunc(
                stream, [](void* value) { static_cast<std::atomic<int>*>(value)->store(1); }, &done),
            cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(done.load(), 0);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  gate.open();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(done.load(), 1);
}

TEST_F(StreamTest, HandlesThatAreNoneAreRefused) {
  int nothing = 0;
  const auto stream = reinterpret_cast<cudaStream_t>(&nothing);
  const auto event = reinterpret_cast<cudaEvent_t>(&nothing);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, event, 0), cudaErrorInvalidResourceHandle);
}

TEST_F(StreamTest, AHostFunctionMayNotCallCuda) {
  const TestStream stream;
  std::atomic<int> error = 0;
  const auto call = [](void* to) {
    std::size_t free = 0, total = 0;
    static_cast<std::atomic<int>*>(to)->store(cudaMemGetInfo(&free, &total));
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream, call, &error), cudaSuccess);
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  EXPECT_EQ(error.load(), cudaErrorNotPermitted);
  EXPECT_EQ(fake_cuda_misuses().calls_from_host_functions, 1U);
}

TEST_F(StreamTest, HostFunctionsOfAllStreamsRunOneAtATime) {
  const TestStream first, second, third;
  struct Counts {
    std::atomic<int> inside = 0, most = 0, done = 0;
  } counts;
  const auto count = [](void* to) {
    Counts& counted = *static_cast<Counts*>(to);
    counted.most = std::max(counted.most.load(), ++counted.inside);
    std::this_thread::yield();
    --counted.inside;
    ++counted.done;
  };
  for (int i = 0; i < 100; ++i) {
    for (const TestStream* stream : {&first, &second, &third})
      ASSERT_EQ(cudaLaunchHostFunc(*stream, count, &counts), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(counts.most.load(), 1);
  EXPECT_EQ(counts.done.load(), 300);
}

// Without turns it would end with code 0.
TEST(StreamDeathTest, AHostFunctionThatWaitsForAnotherStreamsEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_the_other = [] {
    setenv("STOWAGE_FAKE_CUDA_PATIENCE", "50", 1);
    fake_cuda_reset();
    const TestStream first, second;
    struct Flags {
      std::atomic<bool> waits = false, set = false;
    } flags;
    const auto wait = [](void* to) {
      static_cast<Flags*>(to)->waits = true;
      while (!static_cast<Flags*>(to)->set) std::this_thread::yield();
    };
    cudaLaunchHostFunc(first, wait, &flags);
    while (!flags.waits) std::this_thread::yield();
    cudaLaunchHostFunc(
        second, [](void* to) { static_cast<Flags*>(to)->set = true; }, &flags);
    cudaDeviceSynchronize();
    std::_Exit(0);
  };
  EXPECT_DEATH(wait_for_the_other(), "another stream's waits for its turn");
}

// Enqueues `count` host functions that note their numbers, on a thread of its own.
class Enqueuer {
 public:
  Enqueuer(cudaStream_t stream, int count) : thread_([this, stream, count] { enqueue(stream, count); }) {}
  // True once a call waits; false where all calls have returned without.
  bool has_to_wait() const {
    while (fake_cuda_waiting_callers() == 0) {
      if (returned_ && fake_cuda_waiting_callers() == 0) return false;
      std::this_thread::yield();
    }
    return true;
  }
  void join() { thread_.join(); }
  std::vector<int> order;

 private:
  void enqueue(cudaStream_t stream, int count) {
    for (int i = 0; i < count; ++i) work_.push_back({&order, i});
    for (Noted& noted : work_) EXPECT_EQ(cudaLaunchHostFunc(stream, Noted::run, &noted), cudaSuccess);
    returned_ = true;
  }

  std::vector<Noted> work_;
  std::atomic<bool> returned_ = false;
  std::thread thread_;
};

TEST_F(StreamTest, ACallWaitsForRoomInAFullStream) {
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  Enqueuer enqueuer(stream, 3000);
  EXPECT_TRUE(enqueuer.has_to_wait());
  EXPECT_EQ(fake_cuda_calls("cudaLaunchHostFunc"), 1024U);  // with the gate one too many
  gate.open();
  enqueuer.join();
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
  std::vector<int> expected(3000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(enqueuer.order, expected);
  EXPECT_EQ(fake_cuda_waiting_callers(), 0U);
}

TEST_F(StreamTest, AStreamThatIsNotQuiteFullHoldsNobodyUp) {
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  Enqueuer enqueuer(stream, 1023);
  EXPECT_FALSE(enqueuer.has_to_wait());
  gate.open();
  enqueuer.join();
  ASSERT_EQ(stream.synchronise(), cudaSuccess);
}

// Without a limit it would end with code 0.
TEST(StreamDeathTest, WorkThatWaitsForWhatIsEnqueuedBehindAFullStreamEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fill = [] {
    setenv("STOWAGE_FAKE_CUDA_PATIENCE", "50", 1);
    fake_cuda_reset();
    const TestStream stream;
    Gate gate;
    gate.hold(stream);
    for (int i = 0; i < 1024; ++i)
      cudaLaunchHostFunc(
          stream, [](void*) {}, nullptr);
    gate.open();
    std::_Exit(0);
  };
  EXPECT_DEATH(fill(), "a call waits for room in a stream");
}

// The events are the only thing that orders the two: without them the thread sanitizer reports a race.
TEST_F(StreamTest, AnEventMakesOneStreamsWritesSeenByTheOther) {
  const TestStream first, second;
  const TestEvent event{cudaEventDisableTiming};
  int value = 0;
  const auto add = [](void* to) { ++*static_cast<int*>(to); };
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(cudaLaunchHostFunc(first, add, &value), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
    ASSERT_EQ(cudaLaunchHostFunc(second, add, &value), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event, second), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(first, event, 0), cudaSuccess);
  }
  ASSERT_EQ(second.synchronise(), cudaSuccess);
  EXPECT_EQ(value, 200);
}

// A thread that is in a call at the time of a fork holds its locks in the child for ever.
TEST_F(StreamTest, AForkedChildEndsWhateverOtherThreadsDid) {
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    std::atomic<bool> begun = false;
    std::thread other([&] {
      for (int made = 0; made < 10; ++made) {
        const TestStream stream;
        begun = true;
      }
    });
    while (!begun) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);  // a child that hangs
      std::exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
    other.join();
  }
}

#ifdef __SANITIZE_THREAD__
// The thread sanitizer sees a missing wait even where the streams happen to run one after the other.
TEST(StreamRaceDeathTest, AMissingWaitIsARace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto race = [] {
    int value = 0;
    const auto add = [](void* to) { ++*static_cast<int*>(to); };
    const TestStream first, second;
    const TestEvent event;
    cudaLaunchHostFunc(first, add, &value);
    cudaEventRecord(event, first);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the first has run by now, but nobody asked
    cudaLaunchHostFunc(second, add, &value);
    cudaEventRecord(event, second);
    second.synchronise();
    std::_Exit(0);
  };
  EXPECT_EXIT(race(), testing::ExitedWithCode(0), "data race");
}
#endif

}  // namespace
}  // namespace fake_cuda_test
