// Compiles xxHash into this file, so that a program that links Stowage needs no libxxhash.
#define XXH_INLINE_ALL
#include "src/checkpoint/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "stowage/checkpoint.h"

namespace stowage {

struct Checksum::State {
  XXH3_state_t value;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->value); }

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->value, bytes.data(), bytes.size());
}

std::string Checksum::digits() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->value);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.digits();
}

std::string fingerprint(std::string_view bytes) {
  return fmt::format("{} bytes, xxh3 {}", bytes.size(), checksum_of(std::as_bytes(std::span(bytes))));
}

}  // namespace stowage
