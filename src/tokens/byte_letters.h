// GPT-2's spelling of bytes: each has a printable letter, so that tokens are words in a JSON file. Printable
// characters of Latin-1 stand for themselves; the others are U+0100 and up, in their order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stowage {

// The letter of each byte in UTF-8.
const std::array<std::string, 256>& byte_letters();

std::string spelled(std::string_view bytes);
// The bytes that `letters` spell; nothing where one of them is no byte's letter.
std::optional<std::string> unspelled(std::string_view letters);

// The bytes in the order of their letters: ids 0 to 255 of GPT-2's vocabulary.
const std::array<std::uint8_t, 256>& bytes_by_letter();

}  // namespace stowage
