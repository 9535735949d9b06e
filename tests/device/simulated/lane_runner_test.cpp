#include "src/device/simulated/lane_runner.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace stowage::simulated {
namespace {

// Stands still but for sleeping, which always lasts longer than asked.
class FakeClock final : public Clock {
 public:
  double now() const override { return time; }
  void sleep_until(double seconds) const override {
    ++sleeps;
    time = std::max(time, seconds) + oversleep;
  }
  mutable double time = 0;
  mutable int sleeps = 0;
  double oversleep = 0.25;
};

class LaneRunnerTest : public testing::Test {
 public:  // launched functions reach in
  LaneRunner runner(Pace pace) { return LaneRunner({&signals, &clock, Poison::full}, pace, "test lane 0"); }
  Task copy(double seconds, double ready = 0) {
    Task task{.kind = TaskKind::copy, .name = &name};
    task.to = &to;
    task.from = &from;
    task.bytes = sizeof to;
    task.seconds = seconds;
    task.ready = ready;
    return task;
  }
  Task launch(void (*function)(void*), double seconds = 0) {
    Task task{.kind = TaskKind::launch, .name = &name};
    task.function = function;
    task.context = this;
    task.seconds = seconds;
    return task;
  }
  Task wait_for(SignalId signal) {
    signals.retain(signal);
    Task task{.kind = TaskKind::wait};
    task.signal = signal;
    return task;
  }
  // What the lane records now.
  Outcome record(LaneRunner& lane, bool clears = false) {
    const SignalId signal = signals.acquire(0);
    signals.retain(signal);
    Task task{.kind = TaskKind::record};
    task.clears = clears;
    task.signal = signal;
    lane.perform(task);
    return signals.peek(signal);
  }
  SignalId done_at(double time, std::shared_ptr<const Failure> failure = nullptr) {
    const SignalId signal = signals.acquire(1);
    signals.complete(signal, time, std::move(failure));
    return signal;
  }

  Signals signals;
  FakeClock clock;
  std::string name = "work";
  int to = 0, from = 42;
  int runs = 0;
};

TEST_F(LaneRunnerTest, VirtualTimeAddsUp) {
  LaneRunner lane = runner(Pace::virtual_time);
  lane.perform(copy(0.5));
  EXPECT_EQ(to, 42);
  EXPECT_EQ(record(lane).time, 0.5);
  lane.perform(wait_for(done_at(2.0)));
  lane.perform(copy(0.5));
  EXPECT_EQ(record(lane).time, 2.5);
  lane.perform(wait_for(done_at(1.0)));  // long past
  lane.perform(launch([](void*) {}, 0.25));
  EXPECT_EQ(record(lane).time, 2.75);
  lane.perform(copy(1.0, 5.0));  // enqueued at 5
  EXPECT_EQ(record(lane).time, 6.0);
  EXPECT_EQ(clock.sleeps, 0);
}

TEST_F(LaneRunnerTest, OversleepingOneModelledCopyDoesNotDelayTheNext) {
  LaneRunner lane = runner(Pace::modelled);
  for (int i = 1; i <= 10; ++i) {
    lane.perform(copy(0.5));
    EXPECT_EQ(record(lane).time, 0.5 * i) << i;
    EXPECT_EQ(clock.time, 0.5 * i + 0.25) << i;  // one oversleep behind, not i of them
  }
  EXPECT_EQ(clock.sleeps, 10);
}

TEST_F(LaneRunnerTest, AModelledCopyStartsWhenItIsEnqueuedOnAnIdleLane) {
  LaneRunner lane = runner(Pace::modelled);
  clock.time = 7;
  lane.perform(copy(0.5, 7.0));
  EXPECT_EQ(record(lane).time, 7.5);
}

TEST_F(LaneRunnerTest, AModelledCopyNeverEndsBeforeItsBytesAreThere) {
  LaneRunner lane = runner(Pace::modelled);
  clock.time = 7;
  lane.perform(copy(0.5, 1.0));  // the model says 1.5
  EXPECT_EQ(record(lane).time, 7.0);
}

TEST_F(LaneRunnerTest, MeasuredTimeIsTheClocks) {
  LaneRunner lane = runner(Pace::measured);
  clock.time = 3;
  lane.perform(copy(100));
  EXPECT_EQ(record(lane).time, 3.0);
  lane.perform(launch([](void* test) { static_cast<LaneRunnerTest*>(test)->clock.time = 4; }, 100));
  EXPECT_EQ(record(lane).time, 4.0);
  EXPECT_EQ(clock.sleeps, 0);
}

TEST_F(LaneRunnerTest, AFailedLaneSkipsWorkUntilARecordClearsIt) {
  LaneRunner lane = runner(Pace::virtual_time);
  const auto counts = [](void* test) { ++static_cast<LaneRunnerTest*>(test)->runs; };
  lane.perform(launch([](void*) { throw std::runtime_error("no luck"); }));
  lane.perform(launch(counts));
  lane.perform(copy(1));
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(to, 0);
  const Outcome failed = record(lane);
  ASSERT_TRUE(failed.failure);
  EXPECT_EQ(failed.failure->call, "launch");
  EXPECT_NE(failed.failure->message.find("launch 'work' (0 bytes) on test lane 0 failed: no luck"),
            std::string::npos);
  EXPECT_TRUE(record(lane, true).failure);
  EXPECT_FALSE(record(lane).failure);
  lane.perform(launch(counts));
  EXPECT_EQ(runs, 1);
}

TEST_F(LaneRunnerTest, SurvivesWhatIsNoException) {
  LaneRunner lane = runner(Pace::virtual_time);
  lane.perform(launch([](void*) { throw 7; }));
  EXPECT_TRUE(record(lane).failure);
}

TEST_F(LaneRunnerTest, ALaneBehindAFailureFails) {
  const auto failure = std::make_shared<const Failure>(Failure{"why", "copy"});
  LaneRunner lane = runner(Pace::virtual_time);
  lane.perform(wait_for(done_at(1, failure)));
  lane.perform(copy(1));
  EXPECT_EQ(to, 0);
  EXPECT_EQ(record(lane, true).failure, failure);

  Task ignoring = wait_for(done_at(1, failure));
  ignoring.ignores_failure = true;
  lane.perform(ignoring);
  lane.perform(copy(1));
  EXPECT_EQ(to, 42);
}

TEST_F(LaneRunnerTest, AnInjectedFaultDoesNotDoTheWork) {
  LaneRunner lane = runner(Pace::virtual_time);
  Task task = copy(1);
  task.fails = true;
  lane.perform(task);
  EXPECT_EQ(to, 0);
  EXPECT_NE(record(lane).failure->message.find("fault injected"), std::string::npos);
}

}  // namespace
}  // namespace stowage::simulated
