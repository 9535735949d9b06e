#include "offload/engine/lanes.h"

#include <utility>

namespace stowage {
namespace {

// One report per lane for its own failure, one for a failure that reaches it from another lane, and
// one for a call that fails by itself.
constexpr int attempts = 4;

template <std::size_t... row>
std::array<Lane, lane_roles> make_lanes(Device& device, std::index_sequence<row...>) {
  return {Lane(device, static_cast<LaneRole>(row))...};
}

}  // namespace

Lanes::Lanes(Device& device)
    : device_(device), lanes_(make_lanes(device, std::make_index_sequence<lane_roles>())) {}

void Lanes::synchronise() {
  for (const Lane& lane : lanes_) device_.synchronise_lane(lane.id());
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
    for (const Lane& lane : lanes_) quiet = synchronise_quietly(lane) && quiet;
    if (quiet) return true;
  }
  return false;
}

}  // namespace stowage
