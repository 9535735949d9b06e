// EventTable: maps each event to the signal of its most recent record. Holds one reference per event.
// Not synchronised.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/device/simulated/signals.h"

namespace stowage::simulated {

class EventTable {
 public:
  explicit EventTable(Signals& signals) : signals_(signals) {}

  EventId create(bool timed = true);
  // Throws InvalidInput, naming `call`, for an unknown event; so do the functions below.
  void destroy(EventId event, std::string_view call);
  void expect(EventId event, std::string_view call) const;
  void expect_timed(EventId event, std::string_view call) const;
  // Returns nullopt if the event was never recorded.
  std::optional<SignalId> signal(EventId event, std::string_view call) const;
  // Takes over the caller's reference.
  void set(EventId event, SignalId signal);

 private:
  struct Slot {
    bool live = false;
    bool timed = false;
    std::optional<SignalId> signal;
  };
  Signals& signals_;
  std::vector<Slot> slots_;
  std::vector<EventId> free_;
};

}  // namespace stowage::simulated
