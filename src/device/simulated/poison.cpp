#include "src/device/simulated/poison.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace stowage::simulated {
namespace {

static_assert(std::endian::native == std::endian::little);

void fill_bytes(std::byte* at, Bytes bytes) {
  const auto phase = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) % 8);
  std::uint64_t word = std::rotr(poison_word, static_cast<int>(8 * phase));
  for (; bytes >= 8; at += 8, bytes -= 8) std::memcpy(at, &word, 8);
  std::memcpy(at, &word, bytes);
}

}  // namespace

void fill_poison(void* begin, Bytes bytes, Poison poison) {
  auto* const first = static_cast<std::byte*>(begin);
  if (poison == Poison::none) return;
  if (poison == Poison::full) return fill_bytes(first, bytes);
  constexpr Bytes word = 8, stride = 256;
  const Bytes edge = std::min(bytes, word);
  fill_bytes(first, edge);
  fill_bytes(first + (bytes - edge), edge);
  const Bytes aligned = (stride - reinterpret_cast<std::uintptr_t>(first) % stride) % stride;
  for (Bytes at = aligned; at + word <= bytes; at += stride) fill_bytes(first + at, word);
}

}  // namespace stowage::simulated
