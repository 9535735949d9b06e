// Codes of 4 or 8 bits for arrays of f32, bf16 or f16, with a scale for each group of 256 elements: sizes and
// layout. The values are rounded; kernels/math/group_codes.h says which levels a code can stand for.
#pragma once

#include <cstdint>

#include "stowage/bytes.h"
#include "stowage/data_type.h"

namespace stowage {

// Bits of an element's code.
enum class CodeBits : std::uint8_t { four = 4, eight = 8 };

// True for the types whose arrays have codes.
constexpr bool has_codes(DataType type) {
  return type == DataType::f32 || type == DataType::bf16 || type == DataType::f16;
}

// The most elements of a coded array.
inline constexpr std::int64_t most_coded_elements = std::int64_t{1} << 48;

// Consecutive elements that share one header, from the first element of the array on. The last group of an
// array may be shorter.
inline constexpr std::int64_t code_group = 256;
constexpr std::int64_t code_groups(std::int64_t elements) { return (elements + code_group - 1) / code_group; }

// Bytes of a group's header: scale, place, kind.
inline constexpr std::int64_t code_header_bytes = 3;

// A coded array has the codes of all elements first, then the headers of all groups:
//
//     codes of group 0 | codes of group 1 | … | codes of the last group | header 0 | header 1 | …
//
// With 4 bits, byte k of the codes holds element 2k (low half) and element 2k + 1. A group of n elements thus
// takes ceil(n * bits / 8) + 3 bytes: a whole one 131 with 4 bits and 259 with 8 bits, 3.90 and 1.97 times
// less than bf16. Codes stand apart from headers, so that those of every group are aligned as the array is.

// Returns the bytes of the codes alone, which is where the headers begin.
constexpr Bytes code_bytes(std::int64_t elements, CodeBits bits) {
  return static_cast<Bytes>((elements * static_cast<std::int64_t>(bits) + 7) / 8);
}
// Returns the bytes of a coded array of `elements` >= 0.
constexpr Bytes coded_bytes(std::int64_t elements, CodeBits bits) {
  return code_bytes(elements, bits) + static_cast<Bytes>(code_header_bytes * code_groups(elements));
}

}  // namespace stowage
