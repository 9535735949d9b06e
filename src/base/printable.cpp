#include "src/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

namespace stowage {
namespace {

// Bytes of a character with this first one; 0: no character begins with it.
std::size_t bytes_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

bool is_encoded_in(std::size_t bytes, char32_t code) {
  if (bytes == 3) return code >= 0x800 && (code < 0xd800 || code > 0xdfff);
  return bytes < 4 || (code >= 0x10000 && code <= 0x10ffff);
}

// The code point that `text` begins with in `bytes` bytes.
std::optional<char32_t> code_of(std::string_view text, std::size_t bytes) {
  if (bytes == 0 || bytes > text.size()) return {};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  char32_t code = bytes == 1 ? byte(0) : byte(0) & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = (code << 6U) | (byte(i) & 0x3fU);
  }
  return is_encoded_in(bytes, code) ? std::optional(code) : std::nullopt;
}

void append(std::string& out, const Character& character) {
  if (!character.code)
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(character.bytes[0]));
  else if (is_spelled_out(*character.code))
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<std::uint32_t>(*character.code));
  else
    out += character.bytes;
}

// A word without its middle, where it is long.
std::string shortened(std::string_view word) {
  std::vector<std::string_view> characters;
  for (std::string_view rest = word; !rest.empty();) characters.push_back(take_character(rest).bytes);
  if (characters.size() <= longest_shown_name) return std::string(word);
  const auto end = static_cast<std::size_t>(characters[longest_shown_name / 2].data() - word.data());
  const std::string_view first_of_last = characters[characters.size() - longest_shown_name / 2];
  const auto begin = static_cast<std::size_t>(first_of_last.data() - word.data());
  return fmt::format("{}…{}", word.substr(0, end), word.substr(begin));
}

}  // namespace

Character take_character(std::string_view& text) {
  const std::size_t bytes = bytes_of(static_cast<unsigned char>(text.front()));
  const auto code = code_of(text, bytes);
  const Character character{text.substr(0, code ? bytes : 1), code};
  text.remove_prefix(character.bytes.size());
  return character;
}

bool is_spelled_out(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c ||
         (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

std::string printable(std::string_view name, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < most && !name.empty(); ++i) append(out, take_character(name));
  return name.empty() ? out : out + "…";
}

std::string printable_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character character = take_character(text);
    if (character.bytes == "\n" || character.bytes == "\t")
      out += character.bytes;
    else
      append(out, character);
  }
  return out;
}

std::string printable_message(std::string_view text) {
  std::string message;
  while (!text.empty()) {
    const std::size_t word = std::min(text.find_first_of(" \t\n"), text.size());
    const std::size_t next = std::min(text.find_first_not_of(" \t\n", word), text.size());
    message += shortened(text.substr(0, word));
    message += text.substr(word, next - word);
    text.remove_prefix(next);
  }
  return printable_lines(message);
}

}  // namespace stowage
