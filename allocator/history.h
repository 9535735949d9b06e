// History: the last events of an allocator, in a ring. Thread-safe; what is off costs one comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/caching_allocator.h"

namespace stowage::caching {

enum class EventKind : std::uint8_t { allocate, release, wait, map, unmap, synchronise, out_of_memory };
std::string_view to_string(EventKind kind);

struct HistoryEvent {
  EventKind kind = EventKind::allocate;
  std::uintptr_t address = 0;  // 0 where there is none
  Bytes bytes = 0;
  LaneId stream = 0;
  PoolId pool = 0;
};

class History {
 public:
  explicit History(std::size_t entries) : entries_(entries) {}
  bool is_on() const { return entries_ > 0; }
  void add(const HistoryEvent& event) {
    if (is_on()) append(event);
  }
  std::string json() const;
  std::string text() const;

 private:
  void append(const HistoryEvent& event);
  // Calls function(number, event), oldest first. Numbers count from 0 since the start.
  template <class Function>
  void for_each(Function&& function) const STOWAGE_REQUIRES(mutex_) {
    const std::uint64_t oldest = added_ - ring_.size();
    for (std::uint64_t number = oldest; number < added_; ++number) function(number, ring_[number % entries_]);
  }

  const std::size_t entries_;
  mutable Mutex mutex_;
  std::vector<HistoryEvent> ring_ STOWAGE_GUARDED_BY(mutex_);  // event `number` at number % entries_
  std::uint64_t added_ STOWAGE_GUARDED_BY(mutex_) = 0;
};

}  // namespace stowage::caching
