// Names of parameters that are blocks of a table's rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stowage {

// "embed_tokens.weight.rows.16384"
std::string name_of_block(std::string_view table, std::int64_t first_row);

struct BlockName {
  std::string_view table;  // "embed_tokens.weight"
  std::int64_t first_row = 0;
};
// Returns what name_of_block was given; nothing for any other name.
std::optional<BlockName> block_in(std::string_view name);

// Returns the name of the table that a parameter of this name is a block of; the name itself if it is none.
std::string_view name_of_table(std::string_view name);

}  // namespace stowage
