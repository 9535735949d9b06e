// SizeBins: the free blocks of one lane's cache, by size, in bins with a bitmap: putting and taking take
// constant time.
//
// Sizes count in units. Up to 64 units each size has its bin; above, each power of two has 32. A request
// takes a block of its size: blocks are neither split nor joined here, which is the heap's work. Newest
// first. Not synchronised.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/block.h"

namespace stowage::caching {

class SizeBins {
 public:
  static constexpr int fine_bits = 5;
  static constexpr std::size_t bins = 1024;  // sizes go up to 2^36 units, 32 TiB
  static constexpr int looks = 4;            // number of blocks of a bin that a request tries

  void put(Block& block) {
    const std::size_t bin = bin_of(block.at.length() / BlockTable::unit);
    block.next = heads_[bin];
    heads_[bin] = &block;
    filled_[bin / 64] |= std::uint64_t{1} << bin % 64;
  }

  // Returns null if no block fits. `bytes` is a multiple of the unit.
  Block* take(Bytes bytes) {
    const std::size_t bin = bin_of(bytes / BlockTable::unit);
    return (filled_[bin / 64] >> bin % 64 & 1) != 0 ? take_from(bin, bytes) : nullptr;
  }

  // Returns all blocks as a list by `next`.
  Block* take_all() {
    Block* all = nullptr;
    for (std::size_t word = 0; word < filled_.size(); ++word)
      for (; filled_[word] != 0; filled_[word] &= filled_[word] - 1) {
        Block*& head = heads_[word * 64 + static_cast<std::size_t>(std::countr_zero(filled_[word]))];
        while (head != nullptr) {
          Block* const block = head;
          head = block->next;
          block->next = all;
          all = block;
        }
      }
    return all;
  }

  static std::size_t bin_of(std::uint64_t units) {
    if (units < 64) return units;
    const auto power = static_cast<int>(std::bit_width(units)) - 1;
    return (static_cast<std::size_t>(power - fine_bits) << fine_bits) + (units >> (power - fine_bits));
  }

 private:
  Block* take_from(std::size_t bin, Bytes bytes) {
    Block** link = &heads_[bin];
    for (int look = 0; look < looks && *link != nullptr; ++look, link = &(*link)->next) {
      Block* const block = *link;
      if (block->at.length() != bytes) continue;
      *link = block->next;
      if (heads_[bin] == nullptr) filled_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
      return block;
    }
    return nullptr;
  }

  std::array<Block*, bins> heads_{};
  std::array<std::uint64_t, bins / 64> filled_{};
};

}  // namespace stowage::caching
