#include "offload/engine/lanes.h"

#include <algorithm>

namespace stowage {
namespace {

// A lane reports its own failure, a failure that reaches it from another lane, and a call that fails by
// itself; the last attempt finds it quiet.
constexpr int attempts = 4;

}  // namespace

Lanes::Lanes(Device& device, const Plan& plan) : device_(device) {
  const bool has_peers = std::any_of(plan.instructions.begin(), plan.instructions.end(),
                                     [](const Instruction& i) { return i.lane == LaneRole::peer; });
  for (std::size_t row = 0; row < lane_roles; ++row) {
    const auto role = static_cast<LaneRole>(row);
    if (role != LaneRole::peer || has_peers) lanes_.at(row).emplace(device, role);
  }
}

std::array<void*, lane_roles> Lanes::streams() const {
  std::array<void*, lane_roles> streams{};
  for (std::size_t row = 0; row < lane_roles; ++row)
    if (lanes_.at(row) && lane_table.at(row).computes_on(MemoryId::device))
      streams.at(row) = device_.native_stream(lanes_.at(row)->id());
  return streams;
}

void Lanes::synchronise() {
  for (const std::optional<Lane>& lane : lanes_)
    if (lane) device_.synchronise_lane(lane->id());
}

bool Lanes::synchronise_quietly(const Lane& lane) noexcept {
  try {
    device_.synchronise_lane(lane.id());
    return true;
  } catch (...) {
    return false;
  }
}

bool Lanes::settle() noexcept {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    bool quiet = true;
    for (const std::optional<Lane>& lane : lanes_)
      if (lane) quiet = synchronise_quietly(*lane) && quiet;
    if (quiet) return true;
  }
  return false;
}

}  // namespace stowage
