// Orders of very many things that need no memory.
#pragma once

#include <cstdint>

namespace stowage {

// Where `index` stands in a permutation of [0, count) that is a function of seed and epoch: a Feistel network
// of twelve rounds of Philox4x32-10 over the next power of four (Luby and Rackoff, "How to construct
// pseudorandom permutations"), walked until it is back among [0, count) (Black and Rogaway, "Ciphers with
// arbitrary finite domains"). index < count.
std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch);

}  // namespace stowage
