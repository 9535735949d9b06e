// Dropout's random bits: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"),
// from Random123. A draw is a function of (seed, key, step, element of the batch) and nothing else.
#pragma once

#include <Random123/philox.h>

#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

// A stream of random numbers: `key` tells one op from another.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t key = 0;
  std::uint64_t step = 0;
  // Place of the op's element 0 in the batch. Earlier micro-batches have the elements before it.
  std::uint64_t first = 0;
};

// Words for the elements 4 index … 4 index + 3 of the batch. Only the low 32 bits of key and step count.
STOWAGE_HOST_DEVICE r123::Philox4x32::ctr_type random_words(const RandomStream& stream, std::uint64_t index) {
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); };
  const r123::Philox4x32::ctr_type counter = {{low(index), high(index), low(stream.step), high(stream.seed)}};
  const r123::Philox4x32::key_type key = {{low(stream.seed), low(stream.key)}};
  return r123::Philox4x32()(counter, key);
}

// The threshold, in [0, 2^32], of a word that is uniform in [0, 2^32): an element is dropped if its word is
// below it.
STOWAGE_HOST_DEVICE std::uint64_t dropout_threshold(double probability) {
  const double scaled = probability * 4294967296.0 + 0.5;
  return scaled <= 0 ? 0 : scaled >= 4294967296.0 ? 4294967296U : static_cast<std::uint64_t>(scaled);
}

}  // namespace stowage
