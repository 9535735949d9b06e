#include "src/tokens/text_parts.h"

#include <algorithm>

#include "src/tokens/unicode.h"

namespace stowage {
namespace {

bool space_ends_at(std::string_view text, std::size_t end) {
  // The longest white space has three bytes in UTF-8.
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, end); ++length) {
    std::size_t at = end - length;
    if (is_space(next_code_point(text, at)) && at == end) return true;
  }
  return false;
}

bool is_border(std::string_view text, std::size_t at) {
  if (at < 2 || text[at - 1] != '\n') return false;
  std::size_t next = at;
  return !space_ends_at(text, at - 1) && !is_space(next_code_point(text, next));
}

}  // namespace

std::size_t end_of_part(std::string_view text, std::size_t begin, std::size_t least) {
  if (text.size() - begin <= least) return text.size();
  // A border stands right behind a line end, and a part is not empty.
  for (std::size_t at = begin + std::max<std::size_t>(least, 1) - 1;;) {
    at = text.find('\n', at);
    if (at == std::string_view::npos || ++at == text.size()) return text.size();
    if (is_border(text, at)) return at;
  }
}

}  // namespace stowage
