// Rotary position embedding (Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding"):
// what the kernels of all backends share.
#pragma once

#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

inline constexpr std::int64_t most_rotary_width = 512;  // elements of a head

// theta, and the scaling of Llama 3 (transformers' rope type "llama3"), which stretches slow turns so that
// a model trained on `original_positions` positions can be used on more.
struct RotaryBase {
  double theta = 10000;
  bool scaled = false;
  double factor = 1;                 // by which slow turns are slower
  double low_frequency_factor = 1;   // turns with fewer periods than this in the original positions are slow
  double high_frequency_factor = 4;  // turns with more periods than this stay as they are
  std::int64_t original_positions = 8192;

  // theta and factor are finite and at least 1, so that no angle exceeds the position; 0 < low < high, both
  // finite; there are original positions.
  bool valid() const;
};

// Of each pair of elements, i and i + width / 2: radians from one position to the next.
struct RotaryFrequencies {
  float values[most_rotary_width / 2] = {};
};

// theta^(-2 i / width), scaled; computed in f64 with the same bits on every machine, and rounded once.
// Requires a valid base, and an even width of at most most_rotary_width.
RotaryFrequencies rotary_frequencies(std::int64_t width, const RotaryBase& base);

// A token's row has its query heads, key heads and value heads side by side, each of `width` elements.
struct RotaryShape {
  std::int64_t tokens = 0, sequence = 1;
  std::int64_t heads = 1, key_heads = 1;
  std::int64_t width = 2;
  // [tokens]: index within its sample of the first token of each token's document. Null: a sample is one.
  const std::int32_t* begins = nullptr;
  RotaryFrequencies frequencies{};

  STOWAGE_HOST_DEVICE std::int64_t half() const { return width / 2; }
  STOWAGE_HOST_DEVICE std::int64_t turned_heads() const { return heads + key_heads; }
  STOWAGE_HOST_DEVICE std::int64_t all_heads() const { return heads + 2 * key_heads; }
  STOWAGE_HOST_DEVICE std::int64_t columns() const { return all_heads() * width; }

  // The token's place in its document.
  STOWAGE_HOST_DEVICE float position(std::int64_t token) const {
    const std::int64_t begin = begins != nullptr ? begins[token] : 0;
    return static_cast<float>(token % sequence - begin);
  }
  // The angle by which `pair` turns at a position: the product in f32 for every work type, so that f64 says
  // what the narrower types should be.
  STOWAGE_HOST_DEVICE double angle(float position, std::int64_t pair) const {
    return static_cast<double>(position * frequencies.values[pair]);
  }
};

}  // namespace stowage
