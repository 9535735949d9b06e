#include "allocator/lane_marks.h"

#include <algorithm>

namespace stowage::caching {
LaneMarks::~LaneMarks() {
  for (const Mark& mark : marks_) idle_.push_back(mark.event);
  for (const EventId event : idle_) succeeds([&] { device_.destroy_event(event); });
}

bool LaneMarks::mark() {
  if (is_marked()) return true;
  return succeeds([&] {
    if (marks_.size() < most && idle_.empty()) idle_.push_back(device_.create_event());
    const bool moved = marks_.size() == most;
    const EventId event = moved ? marks_.back().event : idle_.back();
    device_.record(event, clock_.lane);
    if (moved)
      marks_.back().count = released_;
    else
      marks_.push_back({event, released_}), idle_.pop_back();
  });
}

bool LaneMarks::poll() {
  return succeeds([&] {
    while (!marks_.empty() && device_.query(marks_.front().event)) pop_passed();
  });
}

void LaneMarks::pop_passed() {
  clock_.passed.store(marks_.front().count, std::memory_order_release);
  idle_.push_back(marks_.front().event);
  marks_.pop_front();
}

bool LaneMarks::hold(LaneId lane, std::uint64_t count) {
  if (count <= passed()) return true;
  if (marks_.empty() || marks_.back().count < count) {
    if (!mark()) return false;
  }
  const auto at =
      std::find_if(marks_.begin(), marks_.end(), [&](const Mark& mark) { return mark.count >= count; });
  return succeeds([&] { device_.wait(lane, at->event); });
}

bool LaneMarks::synchronise() {
  if (!mark()) return false;
  while (!marks_.empty()) {
    if (!succeeds([&] { device_.synchronise(marks_.front().event); })) return poll() && marks_.empty();
    pop_passed();
  }
  return true;
}

}  // namespace stowage::caching
