// LaneQueue: tasks from whoever enqueues to the one thread that runs them, in order. A ring that
// grows when it is full and then stays.
#pragma once

#include <optional>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/simulated/task.h"

namespace stowage::simulated {

class LaneQueue {
 public:
  static constexpr std::size_t initial_capacity = 4096;  // more than a step has, so that it rarely grows
  LaneQueue() : ring_(initial_capacity) {}
  void push(const Task& task);
  // Blocks for the next task; nothing once the queue is closed and empty.
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

}  // namespace stowage::simulated
