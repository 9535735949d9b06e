// The types of tensors' elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stowage/bytes.h"

namespace stowage {

// bf16 is the upper half of an f32 (kernels/math/bfloat16.h), f16 IEEE half precision
// (kernels/math/float16.h); i16 and i32 hold the low parts that complete bf16 and f16 to master weights, u8
// the codes of 8-bit moments (moments.h).
enum class DataType : std::uint8_t { f32, f64, i32, bf16, i16, f16, u8 };
inline constexpr std::size_t data_type_count = 7;
Bytes size_of(DataType type);  // bytes per element
std::string_view to_string(DataType type);

}  // namespace stowage
