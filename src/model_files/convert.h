// Converts numbers from one element type to another, a bounded run at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "stowage/graph.h"
#include "stowage/safetensors.h"

namespace stowage {

// Returns the file's type that holds the same bits; nullopt for a type that parameters do not have.
std::optional<StoredType> stored_type_of(DataType type);

// Returns the type of parameters that holds the same bits. Requires is_real(type).
DataType data_type_of(StoredType type);

// Whether `convert` reads the type: F16, BF16, F32, F64.
bool is_real(StoredType type);

// Converts as many elements as both sides hold, rounded to the nearest, ties to even. Equal types are copied
// as bits. Neither side need be aligned. Requires that `to` is f32, f64, bf16 or f16.
void convert(StoredType from, std::span<const std::byte> values, DataType to, std::span<std::byte> into);

// Splits f32 master weights into bf16 and the 16 bits beside it, or into f16 and 32 bits, and joins them
// (kernels/math/bfloat16.h, float16.h).
void split_masters(std::span<const std::byte> masters, DataType weight, std::span<std::byte> weights,
                   std::span<std::byte> low);
void join_masters(DataType weight, std::span<const std::byte> weights, std::span<const std::byte> low,
                  std::span<std::byte> masters);
// Bytes of each element of `low`.
inline Bytes low_bytes(DataType weight) { return weight == DataType::bf16 ? 2 : 4; }

}  // namespace stowage
