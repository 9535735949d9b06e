// The codec of kernels/cpu/codec.h on a card: the same codes, and the same bits decoded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stowage/codec.h"

namespace stowage::cuda {

// T: float, Bfloat16 or Float16, here and below. Encodes `count` >= 0 elements, up to 2^40, into
// coded_bytes(count, bits) bytes. Accesses are wide if the elements are 16-byte aligned and the codes 8-byte
// aligned; neither is needed.
template <class T>
void encode(CodeBits bits, std::int64_t count, const T* from, std::byte* to, void* stream);

// Decodes all elements of an array that encode wrote; each is rounded to T once.
template <class T>
void decode(CodeBits bits, std::int64_t count, const std::byte* from, T* to, void* stream);

}  // namespace stowage::cuda
