// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3"), keyed by the seed.
#pragma once

#include <cstdint>

namespace stowage::samples {

// Streams that never share a draw.
enum class RandomStream : std::uint32_t { batches = 1, generation = 2, pairs = 3 };

// Returns 64 random bits, a pure function of the arguments. `draw` < 2^24 numbers several draws with the same
// other arguments.
std::uint64_t random_bits(std::uint64_t seed, RandomStream stream, std::uint64_t step, std::uint32_t index,
                          std::uint32_t draw = 0);

}  // namespace stowage::samples
