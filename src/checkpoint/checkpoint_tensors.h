// Where values lie in tensors.bin.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "stowage/checkpoint.h"

namespace stowage {

inline constexpr Bytes checkpoint_alignment = 64;
inline constexpr Bytes checkpoint_piece = Bytes{4}
                                          << 20;  // read and written at once; a multiple of the above

// Nothing where it overflows.
std::optional<Bytes> value_bytes(DataType type, std::span<const std::int64_t> shape);
// Of the tensor behind; nothing where no file reaches so far.
std::optional<Bytes> next_offset(const CheckpointTensor& tensor);

// Calls work(offset, bytes) for the parts of a value, in order.
template <class Work>
void for_each_piece(Bytes bytes, Work work) {
  for (Bytes offset = 0; offset < bytes; offset += checkpoint_piece)
    work(offset, std::min(checkpoint_piece, bytes - offset));
}

}  // namespace stowage
