// Where values lie in tensors.bin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// Names in a folder of checkpoints.
inline constexpr std::string_view checkpoint_prefix = "step-";
inline constexpr std::string_view writing_prefix = ".writing-";
inline constexpr std::string_view removing_prefix = ".removing-";
inline constexpr std::string_view best_link = "/best";
inline constexpr std::string_view state_file = "/state.json";
inline constexpr std::string_view tensors_file = "/tensors.bin";

std::string checkpoint_name(std::uint64_t step);  // "step-000000000120"

// Of such a name, with any number of digits; nothing for any other.
std::optional<std::uint64_t> step_named(std::string_view name);

}  // namespace stowage
