#include "offload/engine/lanes.h"

namespace stowage {
namespace {

// One report per lane for its own failure, one for a failure that reaches it from another lane, and
// one for a call that fails by itself.
constexpr int attempts = 4;

}  // namespace

Lanes::Lanes(Device& device)
    : device_(device),
      lanes_{Lane(device, LaneRole::compute), Lane(device, LaneRole::h2d), Lane(device, LaneRole::d2h),
             Lane(device, LaneRole::host)} {}

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
