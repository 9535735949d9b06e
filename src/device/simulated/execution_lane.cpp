#include "src/device/simulated/execution_lane.h"

#include <sys/prctl.h>

#include <thread>
#include <utility>

#include "src/device/simulated/lane_queue.h"

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

}  // namespace stowage::simulated
