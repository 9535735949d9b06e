// The events of a plan's instructions, two of each: consecutive steps use them in turn, so that a
// wait for the step before still means that step when this one has recorded its own.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "stowage/device.h"
#include "stowage/plan.h"

namespace stowage {

// Which of the two sets a step uses: its number modulo 2.
using Parity = std::uint32_t;

class StepEvents {
 public:
  // End events for instructions that someone waits for and for those in `needed`; with `measure` for
  // all, and begin events too.
  StepEvents(Device& device, const Plan& plan, std::initializer_list<InstructionId> needed, bool measure);

  bool measured() const { return measured_; }
  bool has_end(InstructionId id) const { return has_end_[id]; }
  EventId begin(Parity parity, InstructionId id) const { return begins_[parity][id].id(); }
  EventId end(Parity parity, InstructionId id) const { return ends_[parity][id].id(); }

 private:
  bool measured_;
  std::vector<bool> has_end_;
  std::array<std::vector<Event>, 2> begins_;
  std::array<std::vector<Event>, 2> ends_;
};

}  // namespace stowage
