// Permutations that need no memory.
#pragma once

#include <cstdint>

namespace stowage {

// Returns the place of `index` in a permutation of [0, count) that depends on seed and epoch: a Feistel
// network of twelve rounds of Philox4x32-10 over the next power of four (Luby and Rackoff, "How to construct
// pseudorandom permutations"), repeated until the result is in [0, count) (Black and Rogaway, "Ciphers with
// arbitrary finite domains"). Requires index < count.
std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch);

}  // namespace stowage
