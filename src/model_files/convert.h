// Numbers of one element type as those of another, a bounded run at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "stowage/graph.h"
#include "stowage/safetensors.h"

namespace stowage {

// The file's type that holds the same bits; nothing for one that parameters do not have.
std::optional<StoredType> stored_type_of(DataType type);

// Whether `convert` reads it: F16, BF16, F32, F64.
bool is_real(StoredType type);

// As many elements as both hold; each is rounded to the nearest, ties to even. Same types are copied as bits.
// Neither side need be aligned. `to` is f32, f64, bf16 or f16.
void convert(StoredType from, std::span<const std::byte> values, DataType to, std::span<std::byte> into);

// f32 master weights as bf16 and the 16 bits beside it, or as f16 and 32 bits, and back
// (kernels/math/bfloat16.h, float16.h).
void split_masters(std::span<const std::byte> masters, DataType weight, std::span<std::byte> weights,
                   std::span<std::byte> low);
void join_masters(DataType weight, std::span<const std::byte> weights, std::span<const std::byte> low,
                  std::span<std::byte> masters);
// Bytes of each element of `low`.
inline Bytes low_bytes(DataType weight) { return weight == DataType::bf16 ? 2 : 4; }

}  // namespace stowage
