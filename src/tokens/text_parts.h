// Lines of texts, and parts of long texts that can be encoded one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace stowage {

// Returns the text without the empty lines at its end, which editors and transfers leave.
inline std::string_view without_empty_end(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

// Calls take(line, number) for each line, numbered from 1, without its end: "\n" or "\r\n". A byte order mark
// is dropped.
template <class Take>
void for_each_line(std::string_view text, Take&& take) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    take(line, ++number);
    begin = end + 1;
  }
}

// Returns where the part of `text` that begins at `begin` may end: at the first border at least `least` bytes
// on, or at the text's end. Parts together have the ids of the whole text: a border follows a line end
// between two characters that are no white space, where GPT-2's pieces and BERT's words always end. (An added
// token with such a line end inside would be cut in two; no known tokenizer has one.)
std::size_t end_of_part(std::string_view text, std::size_t begin, std::size_t least);

}  // namespace stowage
