// GPT-2's pattern, which cuts a text into the pieces that byte pairs are merged within:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (Radford et al., "Language Models are Unsupervised Multitask Learners".) Pieces cover the text.
#pragma once

#include <cstddef>
#include <string_view>

namespace stowage {

// Where the piece that begins at `begin` ends. Bytes that are no UTF-8 are of the class [^\s\p{L}\p{N}].
std::size_t end_of_piece(std::string_view text, std::size_t begin);

template <class Take>
void for_each_piece(std::string_view text, Take&& take) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_piece(text, begin);
    take(text.substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace stowage
