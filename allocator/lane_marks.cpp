#include "allocator/lane_marks.h"

#include <algorithm>

namespace stowage::caching {
LaneMarks::~LaneMarks() {
  for (const Mark& mark : marks_) idle_.push_back(mark.event);
  for (const EventId event : idle_) succeeds([&] { device_.destroy_event(event); });
}

bool LaneMarks::is_captured() {
  bool captured = true;
  succeeds([&] { captured = device_.is_captured(clock_.lane); });
  return captured;
}

// Asks once more after recording: another thread may have begun a capture in between, which then contains the
// event, and an event of a capture may not be queried.
bool LaneMarks::mark() {
  if (is_marked()) return true;
  if (is_captured()) return false;
  const bool recorded = succeeds([&] {
    if (!is_full() && idle_.empty()) idle_.push_back(device_.create_untimed_event());
    device_.record(is_full() ? marks_.back().event : idle_.back(), clock_.lane);
  });
  if (!recorded) return false;
  if (is_full()) idle_.push_back(marks_.back().event), marks_.pop_back();  // the latest has moved on
  if (is_captured()) return false;
  marks_.push_back({idle_.back(), released_});
  idle_.pop_back();
  return true;
}

bool LaneMarks::poll() {
  if (is_captured()) return false;
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
