// The period of a sequence that became periodic at some point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace stowage {

struct SequencePeriod {
  std::size_t length = 0;
  std::size_t matched = 0;  // the last `matched` tokens have this period, and are at least two of it
  friend bool operator==(const SequencePeriod&, const SequencePeriod&) = default;
};

// Of the longest suffix that repeats, whatever stands before it; `accept` may refuse a length, which then
// stands aside for that of a shorter suffix. In linear time: the failure function of Knuth, Morris and Pratt,
// "Fast pattern matching in strings", 1977, over the tokens from last to first.
std::optional<SequencePeriod> find_period(std::span<const std::uint64_t> tokens,
                                          const std::function<bool(std::size_t length)>& accept);

}  // namespace stowage
