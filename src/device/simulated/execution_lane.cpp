#include "src/device/simulated/execution_lane.h"

#include <sys/prctl.h>

#include <thread>
#include <utility>

namespace stowage::simulated {
namespace {

class ThreadedLane final : public ExecutionLane {
 public:
  explicit ThreadedLane(LaneRunner runner) : runner_(std::move(runner)), thread_([this] { run(); }) {}
  ~ThreadedLane() override {
    queue_.close();
    thread_.join();
  }
  void submit(const Task& task) override { queue_.push(task); }

 private:
  void run() {
    prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: modelled copies end on time
    while (const auto task = queue_.pop()) runner_.perform(*task);
  }

  LaneRunner runner_;  // the thread's own
  LaneQueue queue_;
  std::thread thread_;
};

class VirtualLane final : public ExecutionLane {
 public:
  explicit VirtualLane(LaneRunner runner) : runner_(std::move(runner)) {}
  void submit(const Task& task) override { runner_.perform(task); }

 private:
  LaneRunner runner_;
};

}  // namespace

std::unique_ptr<ExecutionLane> make_execution_lane(Executor executor, LaneRunner runner) {
  if (executor == Executor::virtual_time) return std::make_unique<VirtualLane>(std::move(runner));
  return std::make_unique<ThreadedLane>(std::move(runner));
}

void LaneQueue::push(const Task& task) {
  const MutexLock lock(mutex_);
  if (count_ == ring_.size()) grow();
  ring_[(first_ + count_) % ring_.size()] = task;
  ++count_;
  changed_.notify_one();
}

std::optional<Task> LaneQueue::pop() {
  const MutexLock lock(mutex_);
  while (count_ == 0 && !closed_) changed_.wait(mutex_);
  if (count_ == 0) return std::nullopt;
  const Task task = ring_[first_];
  first_ = (first_ + 1) % ring_.size();
  --count_;
  return task;
}

void LaneQueue::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_one();
}

void LaneQueue::grow() {
  std::vector<Task> larger(2 * ring_.size());
  for (std::size_t i = 0; i < count_; ++i) larger[i] = ring_[(first_ + i) % ring_.size()];
  ring_ = std::move(larger);
  first_ = 0;
}

}  // namespace stowage::simulated
