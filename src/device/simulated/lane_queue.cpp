#include "src/device/simulated/lane_queue.h"

namespace stowage::simulated {

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
