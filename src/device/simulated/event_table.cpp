#include "src/device/simulated/event_table.h"

#include <fmt/core.h>

#include "stowage/error.h"

namespace stowage::simulated {

EventId EventTable::create(bool timed) {
  if (free_.empty()) {
    free_.push_back(static_cast<EventId>(slots_.size()));
    slots_.emplace_back();
  }
  const EventId event = free_.back();
  free_.pop_back();
  slots_[event].live = true;
  slots_[event].timed = timed;
  return event;
}

void EventTable::destroy(EventId event, std::string_view call) {
  expect(event, call);
  if (slots_[event].signal) signals_.release(*slots_[event].signal);
  slots_[event] = {};
  free_.push_back(event);
}

void EventTable::expect(EventId event, std::string_view call) const {
  if (event >= slots_.size() || !slots_[event].live)
    throw InvalidInput(fmt::format("{}: there is no event {}; pass what create_event returned", call, event));
}

void EventTable::expect_timed(EventId event, std::string_view call) const {
  expect(event, call);
  if (!slots_[event].timed)
    throw InvalidInput(fmt::format(
        "{}: event {} has no time; pass what create_event returned, not create_untimed_event", call, event));
}

std::optional<SignalId> EventTable::signal(EventId event, std::string_view call) const {
  expect(event, call);
  return slots_[event].signal;
}

void EventTable::set(EventId event, SignalId signal) {
  if (slots_[event].signal) signals_.release(*slots_[event].signal);
  slots_[event].signal = signal;
}

}  // namespace stowage::simulated
