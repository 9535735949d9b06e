// The type in which AdamW's moments are kept. Arithmetic is in f32 (kernels/math/adamw.h) with every type;
// other types than f32 round, and so change the numbers of a training.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stowage {

// f32: exact. bf16: 2 bytes each. eight_bit: 1 byte each, by blocks (Dettmers et al., "8-bit Optimizers via
// Block-wise Quantization"): a block's largest magnitude is one f32, and a value is a code for its ratio to
// that (kernels/math/moment_codes.h). Only matrices (parameters of two or more dimensions) have other moments
// than f32: biases and the norms' gains are too few to count. f64 parameters have moments in f64.
enum class Moments : std::uint8_t { f32, bf16, eight_bit };
constexpr std::string_view to_string(Moments moments) {
  return moments == Moments::eight_bit ? "8bit" : moments == Moments::bf16 ? "bf16" : "f32";
}
constexpr std::optional<Moments> moments_from(std::string_view name) {
  for (const Moments each : {Moments::f32, Moments::bf16, Moments::eight_bit})
    if (to_string(each) == name) return each;
  return std::nullopt;
}

// Consecutive elements of a parameter that share the scale of their 8-bit moments. The last block of a
// parameter may be shorter.
inline constexpr std::int64_t moment_block = 256;
constexpr std::int64_t moment_blocks(std::int64_t elements) {
  return (elements + moment_block - 1) / moment_block;
}

}  // namespace stowage
