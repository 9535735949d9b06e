// OnlineMemory: who has which bytes of the range, in the order of their addresses.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stowage/bytes.h"

namespace stowage::online {

struct RememberedTensor;

struct Block {
  Bytes bytes = 0;
  RememberedTensor* owner = nullptr;  // null: free
  bool busy = false;                  // an op is about to write it, or writes it
};

// Blocks side by side that can make one gap.
struct Window {
  std::vector<RememberedTensor*> tensors;  // to evict, by address
  double cost = 0;
  Bytes evicted_bytes = 0;
};

class OnlineMemory {
 public:
  explicit OnlineMemory(Bytes capacity);

  // From the smallest gap that is large enough, the lowest among equals; busy. Empty if there is none.
  std::optional<Bytes> take(Bytes bytes, RememberedTensor& owner);
  void settle(Bytes offset) { blocks_.at(offset).busy = false; }  // no longer busy
  // The block's bytes; joined with the gaps beside them.
  Bytes give_back(Bytes offset);

  // What evicting the owner of a block costs, >= 0; empty where that may not be.
  using Price = std::function<std::optional<double>(const RememberedTensor&)>;
  // The cheapest window of at least `bytes`; among equals the one with the fewest bytes to evict, then the
  // lowest. Prices are asked once for each block. Empty if there is none.
  std::optional<Window> cheapest_window(Bytes bytes, const Price& price) const;
  // The most bytes side by side that are free or have a price.
  Bytes largest_window(const Price& price) const;

  const std::map<Bytes, Block>& blocks() const { return blocks_; }  // by offset; they tile the range
  Bytes used_bytes() const { return used_; }
  Bytes free_bytes() const { return capacity_ - used_; }
  Bytes capacity() const { return capacity_; }

 private:
  void add_gap(Bytes offset, Bytes bytes);

  std::map<Bytes, Block> blocks_;
  std::set<std::pair<Bytes, Bytes>> gaps_;  // size, offset
  Bytes capacity_;
  Bytes used_ = 0;
};

}  // namespace stowage::online
