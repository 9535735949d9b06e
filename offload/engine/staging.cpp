#include "offload/engine/staging.h"

#include <algorithm>
#include <cstring>

namespace stowage {
namespace {

constexpr Bytes staging_bytes = 4_MiB;
constexpr Bytes least_spare_bytes = 256_KiB;  // the host waits for each piece, so smaller pieces are too slow
constexpr Bytes piece_alignment = 64;         // keeps every element within one piece

}  // namespace

std::span<std::byte> Staging::take(DeviceMemory& owned, Bytes value_bytes) {
  if (spare_.size() >= std::min(value_bytes, least_spare_bytes)) return spare_;
  owned = staging_memory(device_, std::min(value_bytes, staging_bytes), pageable_fallback_);
  return {owned.data(), owned.bytes()};
}

void Staging::upload(std::byte* device, std::span<const std::byte> value) {
  upload(device, value.size(), [value](Bytes offset, std::span<std::byte> piece) {
    std::memcpy(piece.data(), value.data() + offset, piece.size());
  });
}

void Staging::upload(std::byte* device, Bytes bytes, const FillPiece& piece) {
  DeviceMemory owned;
  std::span<std::byte> staging = take(owned, bytes);
  if (staging.size() < bytes) staging = staging.first(staging.size() / piece_alignment * piece_alignment);
  for (Bytes done = 0; done < bytes; done += staging.size()) {
    const std::span<std::byte> part = staging.first(std::min<Bytes>(staging.size(), bytes - done));
    piece(done, part);
    copy_and_wait(LaneRole::h2d, device + done, part.data(), part.size());
  }
}

void Staging::download(std::span<std::byte> value, const std::byte* device) {
  DeviceMemory owned;
  const std::span<std::byte> staging = take(owned, value.size());
  for (Bytes done = 0; done < value.size(); done += staging.size()) {
    const Bytes part = std::min<Bytes>(staging.size(), value.size() - done);
    copy_and_wait(LaneRole::d2h, staging.data(), device + done, part);
    std::memcpy(value.data() + done, staging.data(), part);
  }
}

// Lets the lanes settle after a failure, because the staging memory may be released next.
void Staging::copy_and_wait(LaneRole role, void* to, const void* from, Bytes bytes) {
  try {
    device_.copy(lanes_[role], to, from, bytes, "staging");
    device_.synchronise_lane(lanes_[role]);
  } catch (...) {
    lanes_.settle();
    throw;
  }
}

}  // namespace stowage
