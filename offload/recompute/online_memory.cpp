#include "offload/recompute/online_memory.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace stowage::online {
namespace {

// A block as the search for windows sees it.
struct Priced {
  const Block* block = nullptr;
  std::optional<double> price;  // 0 for a gap; empty: it stays
};

std::vector<Priced> priced_blocks(const std::map<Bytes, Block>& blocks, const OnlineMemory::Price& price) {
  std::vector<Priced> result;
  result.reserve(blocks.size());
  for (const auto& [offset, block] : blocks) {
    if (block.owner == nullptr)
      result.push_back({&block, 0.0});
    else
      result.push_back({&block, block.busy ? std::nullopt : price(*block.owner)});
  }
  return result;
}

// The blocks from `first` to the last one seen, none of which stays. As prices are not negative, the cheapest
// window that ends at a block is the shortest that is large enough. Sums are of what is in the window, never
// a difference, which would be off where prices differ by orders of magnitude: those of the front part are
// kept from each block to its end, and made anew when the front is used up.
class SlidingWindow {
 public:
  explicit SlidingWindow(const std::vector<Priced>& blocks) : blocks_(blocks), front_(blocks.size() + 1) {}

  std::size_t first() const { return first_; }
  Bytes bytes() const { return bytes_; }
  Bytes evicted_bytes() const { return evicted_; }
  Bytes bytes_without_first() const { return first_ < next_ ? bytes_ - blocks_[first_].block->bytes : 0; }
  double cost() const { return (first_ < front_end_ ? front_[first_] : 0) + back_; }

  // By the next block; empty behind one that stays.
  void extend() {
    const Priced& added = blocks_[next_++];
    if (!added.price) {
      first_ = front_end_ = next_;
      bytes_ = evicted_ = 0;
      back_ = 0;
      return;
    }
    bytes_ += added.block->bytes;
    if (added.block->owner != nullptr) evicted_ += added.block->bytes;
    back_ += *added.price;
  }
  void drop_first() {
    if (first_ == front_end_) all_to_front();
    const Block& dropped = *blocks_[first_++].block;
    bytes_ -= dropped.bytes;
    if (dropped.owner != nullptr) evicted_ -= dropped.bytes;
  }

 private:
  void all_to_front() {
    front_end_ = next_;
    front_[front_end_] = 0;
    for (std::size_t i = next_; i-- > first_;) front_[i] = *blocks_[i].price + front_[i + 1];
    back_ = 0;
  }

  const std::vector<Priced>& blocks_;
  std::vector<double> front_;  // by block: the sum from it to the end of the front
  std::size_t first_ = 0;
  std::size_t front_end_ = 0;
  std::size_t next_ = 0;  // behind the last block seen
  double back_ = 0;       // of the blocks from front_end_ on
  Bytes bytes_ = 0;
  Bytes evicted_ = 0;
};

}  // namespace

OnlineMemory::OnlineMemory(Bytes capacity) : capacity_(capacity) {
  if (capacity > 0) add_gap(0, capacity);
}

void OnlineMemory::add_gap(Bytes offset, Bytes bytes) {
  blocks_[offset] = {bytes, nullptr, false};
  gaps_.emplace(bytes, offset);
}

std::optional<Bytes> OnlineMemory::take(Bytes bytes, RememberedTensor& owner) {
  const auto gap = gaps_.lower_bound({bytes, 0});
  if (gap == gaps_.end()) return std::nullopt;
  const auto [size, offset] = *gap;
  gaps_.erase(gap);
  blocks_[offset] = {bytes, &owner, true};
  if (size > bytes) add_gap(offset + bytes, size - bytes);
  used_ += bytes;
  return offset;
}

Bytes OnlineMemory::give_back(Bytes offset) {
  const auto block = blocks_.find(offset);
  const Bytes bytes = block->second.bytes;
  used_ -= bytes;
  Bytes begin = offset;
  Bytes size = bytes;
  const auto after = std::next(block);
  if (after != blocks_.end() && after->second.owner == nullptr) {
    size += after->second.bytes;
    gaps_.erase({after->second.bytes, after->first});
    blocks_.erase(after);
  }
  if (block != blocks_.begin() && std::prev(block)->second.owner == nullptr) {
    const auto before = std::prev(block);
    begin = before->first;
    size += before->second.bytes;
    gaps_.erase({before->second.bytes, before->first});
    blocks_.erase(block);
  }
  add_gap(begin, size);
  return bytes;
}

std::optional<Window> OnlineMemory::cheapest_window(Bytes bytes, const Price& price) const {
  const std::vector<Priced> priced = priced_blocks(blocks_, price);
  std::optional<Window> best;
  std::size_t best_first = 0;
  std::size_t best_last = 0;
  SlidingWindow window(priced);
  for (std::size_t last = 0; last < priced.size(); ++last) {
    window.extend();
    while (window.bytes_without_first() >= bytes) window.drop_first();
    if (window.bytes() < bytes) continue;
    const Window found{{}, window.cost(), window.evicted_bytes()};
    if (best && std::tie(found.cost, found.evicted_bytes) >= std::tie(best->cost, best->evicted_bytes))
      continue;
    best = found;
    best_first = window.first();
    best_last = last;
  }
  if (best)
    for (std::size_t i = best_first; i <= best_last; ++i)
      if (priced[i].block->owner != nullptr) best->tensors.push_back(priced[i].block->owner);
  return best;
}

Bytes OnlineMemory::largest_window(const Price& price) const {
  Bytes largest = 0;
  Bytes current = 0;
  for (const Priced& each : priced_blocks(blocks_, price)) {
    current = each.price ? current + each.block->bytes : 0;
    largest = std::max(largest, current);
  }
  return largest;
}

}  // namespace stowage::online
