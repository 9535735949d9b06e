#include "src/models/table_blocks.h"

#include <fmt/format.h>

#include <charconv>

namespace stowage {
namespace {

constexpr std::string_view rows = ".rows.";

}  // namespace

std::string name_of_block(std::string_view table, std::int64_t first_row) {
  return fmt::format("{}{}{}", table, rows, first_row);
}

std::optional<BlockName> block_in(std::string_view name) {
  const std::size_t at = name.rfind(rows);
  if (at == std::string_view::npos) return {};
  BlockName block{name.substr(0, at)};
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + at + rows.size(), end, block.first_row);
  if (error != std::errc() || rest != end || block.first_row < 0) return {};
  return block;
}

std::string_view name_of_table(std::string_view name) {
  const std::optional<BlockName> block = block_in(name);
  return block ? block->table : name;
}

}  // namespace stowage
