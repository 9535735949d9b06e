// GPT-2's pattern, which cuts a text into the pieces that byte pairs are merged within:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (Radford et al., "Language Models are Unsupervised Multitask Learners".) Pieces cover the text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stowage {

// Returns the end of the piece that begins at `begin`. Bytes that are no UTF-8 are of the
// class [^\s\p{L}\p{N}].
std::size_t end_of_piece(std::string_view text, std::size_t begin);

template <class Take>
void for_each_piece(std::string_view text, Take&& take) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_piece(text, begin);
    take(text.substr(begin, end - begin));
    begin = end;
  }
}

// GPT-2's spelling of bytes: each byte has a printable letter, so that tokens are words in a JSON file.
// Printable characters of Latin-1 stand for themselves; the other bytes take U+0100 and up, in their order.

// The letter of each byte in UTF-8.
const std::array<std::string, 256>& byte_letters();

std::string spelled(std::string_view bytes);
// Returns the bytes that `letters` spell; nullopt if a letter is no byte's.
std::optional<std::string> unspelled(std::string_view letters);

// The bytes in the order of their letters: ids 0 to 255 of GPT-2's vocabulary.
const std::array<std::uint8_t, 256>& bytes_by_letter();

}  // namespace stowage
