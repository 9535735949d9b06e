// Byte-pair merges, and their application to a piece of text.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace stowage {

struct TokenPair {
  std::int32_t first = 0;
  std::int32_t second = 0;
  auto operator<=>(const TokenPair&) const = default;
};

struct TokenPairHash {
  std::size_t operator()(TokenPair pair) const {
    // Both halves spread over all bits (Knuth's multiplicative hashing).
    const std::uint64_t both =
        std::uint64_t{static_cast<std::uint32_t>(pair.first)} << 32 | static_cast<std::uint32_t>(pair.second);
    const std::uint64_t mixed = (both ^ (both >> 29)) * 0x9E3779B97F4A7C15U;
    return mixed ^ (mixed >> 32);
  }
};

class MergeTable {
 public:
  // Adds a merge; merges of earlier calls come first. A pair that is added again takes its later place, as
  // in `tokenizers`.
  void add(TokenPair pair, std::int32_t made);

  // Merges `tokens` in place: always the earliest merge of any neighbours, the leftmost of equals. Takes O(n
  // log n) time.
  void apply(std::vector<std::int32_t>& tokens) const;

  std::size_t size() const { return merges_.size(); }
  bool makes(std::int32_t token) const;
  std::vector<TokenPair> in_order() const;  // pairs, the earliest merge first

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::int32_t made = 0;
  };
  class Worker;

  const Merge* find(TokenPair pair) const;

  std::unordered_map<TokenPair, Merge, TokenPairHash> merges_;
  std::uint32_t next_rank_ = 0;
};

}  // namespace stowage
