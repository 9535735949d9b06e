// ExecutionLane: runs a lane's tasks on a worker thread, or on the caller at once in virtual time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/simulated/lane_runner.h"

namespace stowage::simulated {

// Queue of tasks from the threads that enqueue to the one thread that runs them, in order: a ring that grows
// when it is full and never shrinks.
class LaneQueue {
 public:
  // More tasks than a step has, so that the queue rarely grows.
  static constexpr std::size_t initial_capacity = 4096;
  LaneQueue() : ring_(initial_capacity) {}
  void push(const Task& task);
  // Blocks for the next task; returns nullopt once the queue is closed and empty.
  std::optional<Task> pop();
  void close();

 private:
  void grow() STOWAGE_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::vector<Task> ring_ STOWAGE_GUARDED_BY(mutex_);
  std::size_t first_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::size_t count_ STOWAGE_GUARDED_BY(mutex_) = 0;
  bool closed_ STOWAGE_GUARDED_BY(mutex_) = false;
};

class ExecutionLane {
 public:
  virtual ~ExecutionLane() = default;  // returns once all submitted tasks have run
  // Runs tasks in order of the calls. One caller at a time.
  virtual void submit(const Task& task) = 0;
};

std::unique_ptr<ExecutionLane> make_execution_lane(Executor executor, LaneRunner runner);

}  // namespace stowage::simulated
