// Text that others wrote, on its way to a terminal or a page.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stowage {

struct Character {
  std::string_view bytes;
  std::optional<char32_t> code;  // nullopt for a byte that is no UTF-8
};

// Takes the first character off `text`, which must not be empty.
Character take_character(std::string_view& text);

// Control characters, and those that hide or reorder what stands around them.
bool is_spelled_out(char32_t code);

inline constexpr std::size_t longest_shown_name = 200;  // characters

// A name for a message or a table: on one line, with control characters and bytes that are no UTF-8 spelled
// out ("\u001b", "\xff"), and cut behind `most` characters with "…".
std::string printable(std::string_view name, std::size_t most = longest_shown_name);

// A whole message or table: as `printable`, but tabs and ends of lines stay, and nothing is cut.
std::string printable_lines(std::string_view text);

// An error's message: as `printable_lines`, but words of more than `longest_shown_name` characters lose their
// middle to "…": a name on the command line may be as long as a file.
std::string printable_message(std::string_view text);

}  // namespace stowage
