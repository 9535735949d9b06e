#include "allocator/period.h"

#include <vector>

namespace stowage {
namespace {

// borders[n]: of the last n tokens, the longest proper suffix that is a prefix too.
std::vector<std::size_t> borders_of(std::span<const std::uint64_t> tokens) {
  const auto from_end = [&](std::size_t i) { return tokens[tokens.size() - 1 - i]; };
  std::vector<std::size_t> borders(tokens.size() + 1, 0);
  for (std::size_t n = 2; n <= tokens.size(); ++n) {
    std::size_t border = borders[n - 1];
    while (border > 0 && from_end(border) != from_end(n - 1)) border = borders[border];
    borders[n] = from_end(border) == from_end(n - 1) ? border + 1 : 0;
  }
  return borders;
}

}  // namespace

std::optional<SequencePeriod> find_period(std::span<const std::uint64_t> tokens,
                                          const std::function<bool(std::size_t length)>& accept) {
  const std::vector<std::size_t> borders = borders_of(tokens);
  for (std::size_t matched = tokens.size(); matched >= 2; --matched) {
    const std::size_t length = matched - borders[matched];
    if (2 * length <= matched && accept(length)) return SequencePeriod{length, matched};
  }
  return std::nullopt;
}

}  // namespace stowage
