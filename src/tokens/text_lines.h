// Lines of a text file, with either kind of line end, and with or without a byte order mark.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace stowage {

// Without the empty lines at its end, which editors and transfers leave.
inline std::string_view without_empty_end(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

// Calls take(line, number) for each line, numbered from 1, without its end.
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

}  // namespace stowage
