// History: the last events of an allocator, in a ring, with the time of each. Thread-safe. A history that is
// switched off costs one comparison per event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/allocator_snapshot.h"

namespace stowage::caching {

using EventKind = AllocatorEventKind;
using HistoryEvent = AllocatorEvent;

class History {
 public:
  explicit History(std::size_t entries) : entries_(entries) {}
  bool is_on() const { return entries_ > 0; }
  void add(const HistoryEvent& event) {
    if (is_on()) append(event);
  }
  // Oldest first. Returns how many older ones are gone.
  std::uint64_t copy(std::vector<HistoryEvent>& events) const;
  std::string json() const;
  std::string text() const;

 private:
  void append(HistoryEvent event);
  // Calls function(number, event), oldest first. Numbers count from 0 since the start.
  template <class Function>
  void for_each(Function&& function) const STOWAGE_REQUIRES(mutex_) {
    const std::uint64_t oldest = added_ - ring_.size();
    for (std::uint64_t number = oldest; number < added_; ++number) function(number, ring_[number % entries_]);
  }

  const std::size_t entries_;
  mutable Mutex mutex_;
  std::vector<HistoryEvent> ring_ STOWAGE_GUARDED_BY(mutex_);  // event `number` is at index number % entries_
  std::uint64_t added_ STOWAGE_GUARDED_BY(mutex_) = 0;
};

}  // namespace stowage::caching
