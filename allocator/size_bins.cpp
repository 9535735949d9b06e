#include "allocator/size_bins.h"

#include <algorithm>

namespace stowage::caching {

Block* SizeBins::take_all() {
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

bool SizeBins::empty() const {
  return std::all_of(filled_.begin(), filled_.end(), [](std::uint64_t word) { return word == 0; });
}

}  // namespace stowage::caching
