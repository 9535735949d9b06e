// The largest model that is built, whoever asks for it: flags of the programs, config.json, a checkpoint, or
// a config in code. So a size out of a file cannot ask for a graph that takes minutes and gigabytes to build.
#pragma once

#include <cstdint>

namespace stowage {

inline constexpr std::int64_t most_layers = 1024;
inline constexpr std::int64_t most_width = 1 << 20;
// Heads, tokens of a vocabulary and of a sample, samples, micro-batches.
inline constexpr std::int64_t most_of_others = 1 << 24;
// All bytes of a step, estimated from above: sums of sizes stay far from 64 bits.
inline constexpr double most_step_bytes = 1e18;

}  // namespace stowage
