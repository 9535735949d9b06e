// Stretches of a sequence that repeat: a Transformer's blocks, one like the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stowage::placement {

// What stands at i stands at i - period too, for every i from begin + period up to end.
struct Repeat {
  std::size_t begin = 0, end = 0, period = 1;
  friend bool operator==(const Repeat&, const Repeat&) = default;
};

// Stretches of at least four periods, by rising begin. They do not overlap: the longest are taken first, of
// equals those of the shortest period. Only periods that a window of four is often repeated at are found.
// Work is about linear where stretches are few.
std::vector<Repeat> find_repeats(std::span<const std::uint32_t> sequence);

}  // namespace stowage::placement
