// Encoder and decoder of arrays in 4 or 8 bits an element (codec.h in include/stowage: sizes and layout;
// kernels/math/group_codes.h: levels; group_search.h: search). The bits depend neither on the number of
// threads nor on the instruction set.
//
// A group with a NaN or an infinity decodes to NaNs, a group of zeros to +0, and one of numbers that are
// subnormal in f32 to +0. All other groups decode to finite numbers. The scale of a group of one number is
// within 2^-8 of it, relatively, and one of its levels is the scale.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stowage/codec.h"

namespace stowage::cpu {

// T: float, Bfloat16 or Float16, here and below. Encodes `count` >= 0 elements into coded_bytes(count, bits)
// bytes, which need no alignment. A short last group is searched as if its last element followed until the
// group's end.
template <class T>
void encode(CodeBits bits, std::int64_t count, const T* from, std::byte* to);

// Decodes all elements of an array that encode wrote; each is rounded to T once.
template <class T>
void decode(CodeBits bits, std::int64_t count, const std::byte* from, T* to);

}  // namespace stowage::cpu
