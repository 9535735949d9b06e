// Dead device bytes: a pattern that is NaN as f16, bf16, f32 and f64, and signalling as f64 and in
// every other f32, so that arithmetic on it shows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stowage/simulated_device.h"

namespace stowage::simulated {

// Bytes of this word, by address modulo 8.
inline constexpr std::uint64_t poison_word = 0x7ff47ff47fa07fa0;

// full: every byte. sampled: one aligned word in each 256 bytes, and the first and last 8 bytes.
void fill_poison(void* begin, Bytes bytes, Poison poison);

}  // namespace stowage::simulated
