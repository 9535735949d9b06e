// Names in a folder of checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stowage {

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
