// Layout of a checkpoint on disk: the places of values in tensors.bin, and the names in a folder
// of checkpoints.
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
// Bytes that are read and written at once; a multiple of checkpoint_alignment.
inline constexpr Bytes checkpoint_piece = Bytes{4} << 20;

// Returns nullopt on overflow.
std::optional<Bytes> value_bytes(DataType type, std::span<const std::int64_t> shape);
// Returns the offset of the next tensor, or nullopt if it is beyond any file.
std::optional<Bytes> next_offset(const CheckpointTensor& tensor);

// Calls work(offset, bytes) for the parts of a value, in order.
template <class Work>
void for_each_piece(Bytes bytes, Work work) {
  for (Bytes offset = 0; offset < bytes; offset += checkpoint_piece)
    work(offset, std::min(checkpoint_piece, bytes - offset));
}

inline constexpr std::string_view checkpoint_prefix = "step-";
inline constexpr std::string_view writing_prefix = ".writing-";
inline constexpr std::string_view removing_prefix = ".removing-";
inline constexpr std::string_view best_link = "/best";
inline constexpr std::string_view state_file = "/state.json";
inline constexpr std::string_view tensors_file = "/tensors.bin";

std::string checkpoint_name(std::uint64_t step);  // "step-000000000120"

// Returns the step in such a name, which may have any number of digits; nullopt for any other name.
std::optional<std::uint64_t> step_named(std::string_view name);

}  // namespace stowage
