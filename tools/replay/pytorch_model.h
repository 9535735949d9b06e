// PyTorch's caching allocator as a model: its rules over addresses, with no memory behind them.
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp, pytorch/pytorch at commit
// 001074d25084fdb87a799823e395a50f5ec044d3: the comment at its top, Note [Expandable Segments], and the
// functions named at each rule in pytorch_model.cpp. Its settings are the documented defaults
// (max_split_size unlimited, no roundup_power2_divisions, no garbage_collection_threshold, no memory
// fraction); `expandable` is expandable_segments:True. Left out, since a trace does not say it: uses on
// other streams (record_stream), CUDA graphs' private pools. Segments get ascending addresses, as a fresh
// device gives them.
#pragma once

#include <deque>
#include <limits>
#include <set>
#include <vector>

#include "tools/replay/replay.h"

namespace stowage {

struct PytorchOptions {
  bool expandable = false;
  Bytes limit = std::numeric_limits<Bytes>::max();  // memory limit of the device
};

class PytorchModel : public AllocatorModel {
 public:
  explicit PytorchModel(const PytorchOptions& options) : options_(options) {}

  std::uint64_t allocate(AllocationId id, Bytes bytes, std::uint32_t stream) override;
  void free(AllocationId id) override;
  Bytes reserved_bytes() const override { return reserved_; }
  void release_cached() override;

 private:
  struct Pool;
  struct Block {
    std::uint64_t address = 0;
    Bytes bytes = 0;
    std::uint32_t stream = 0;
    bool allocated = false;
    bool mapped = true;         // always true outside of expandable segments
    std::uint64_t segment = 0;  // address of its expandable segment
    Pool* pool = nullptr;
    Block* before = nullptr;  // neighbours in the segment
    Block* after = nullptr;
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const;
  };
  struct Pool {
    bool is_small = false;
    std::set<Block*, BySize> free_blocks;
    std::set<Block*, ByAddress> unmapped;
    Bytes page_bytes() const;
  };

  Block* new_block(const Block& block);
  void drop(Block* block) { unused_.push_back(block); }
  Block* take_free(Pool& pool, Bytes bytes, std::uint32_t stream);
  Block* take_new(Pool& pool, Bytes bytes, std::uint32_t stream);
  Block* take_segment(Pool& pool, Bytes bytes, std::uint32_t stream);
  Block* take_expanded(Pool& pool, Bytes bytes, std::uint32_t stream);
  Block* find_expandable(Pool& pool, Bytes bytes, std::uint32_t stream);
  bool should_split(const Block& block, Bytes bytes) const;
  void split(Block* block, Bytes bytes);
  void merge(Block* block, Block* neighbour);
  void cut_behind(Block* block, Bytes bytes, bool mapped);
  bool map(Block* block, Bytes bytes);
  void unmap(Block* block);
  void release_free(Pool& pool);
  void release_segment(Block* block);
  bool fits(Bytes bytes) const { return bytes <= options_.limit && reserved_ <= options_.limit - bytes; }
  std::uint64_t new_range(Bytes bytes);
  Bytes range_bytes(const Pool& pool) const;

  PytorchOptions options_;
  Pool small_{true, {}, {}}, large_{false, {}, {}};
  std::deque<Block> blocks_;    // storage of all blocks
  std::vector<Block*> unused_;  // blocks of that storage without a use
  std::vector<Block*> live_;    // live block of each id
  std::uint64_t next_address_ = Bytes{1} << 30U;
  Bytes reserved_ = 0;
};

}  // namespace stowage
