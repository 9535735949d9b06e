#include "tools/replay/pytorch_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr Bytes least_block = 512;           // kMinBlockSize
constexpr Bytes most_small = 1_MiB;          // kSmallSize
constexpr Bytes small_segment = 2_MiB;       // kSmallBuffer
constexpr Bytes large_segment = 20_MiB;      // kLargeBuffer
constexpr Bytes least_own_segment = 10_MiB;  // kMinLargeAlloc
constexpr Bytes segment_unit = 2_MiB;        // kRoundLarge
constexpr Bytes longest_range = Bytes{1} << 48U;
constexpr std::uint64_t last_address = std::uint64_t{1} << 63U;
constexpr Bytes largest_request = Bytes{1} << 62U;

constexpr Bytes round_up(Bytes bytes, Bytes unit) { return (bytes + unit - 1) / unit * unit; }

// round_size
constexpr Bytes block_bytes(Bytes bytes) { return std::max(least_block, round_up(bytes, least_block)); }

// get_allocation_size
constexpr Bytes segment_bytes(Bytes bytes) {
  if (bytes <= most_small) return small_segment;
  return bytes < least_own_segment ? large_segment : round_up(bytes, segment_unit);
}

}  // namespace

// BlockComparatorSize
bool PytorchModel::BySize::operator()(const Block* a, const Block* b) const {
  return std::tie(a->stream, a->bytes, a->address) < std::tie(b->stream, b->bytes, b->address);
}

// BlockComparatorAddress
bool PytorchModel::ByAddress::operator()(const Block* a, const Block* b) const {
  return std::tie(a->stream, a->address) < std::tie(b->stream, b->address);
}

Bytes PytorchModel::Pool::page_bytes() const { return is_small ? small_segment : large_segment; }

// malloc: a cached block; new memory; all that is cached given back, and new memory.
std::uint64_t PytorchModel::allocate(AllocationId id, Bytes bytes, std::uint32_t stream) {
  if (bytes > largest_request)
    throw OutOfMemory(fmt::format("{} bytes are more than any device has; ask for less", bytes), bytes, 0);
  const Bytes rounded = block_bytes(bytes);
  Pool& pool = rounded <= most_small ? small_ : large_;  // get_pool
  Block* block = take_free(pool, rounded, stream);
  if (block == nullptr) block = take_new(pool, rounded, stream);
  if (block == nullptr) {
    release_cached();
    block = take_new(pool, rounded, stream);
  }
  if (block == nullptr) {
    const Bytes left = options_.limit - reserved_;
    throw OutOfMemory(fmt::format("{} bytes are asked for, {} of {} are reserved; raise the limit", bytes,
                                  reserved_, options_.limit),
                      bytes, left);
  }
  if (should_split(*block, rounded)) split(block, rounded);
  block->allocated = true;
  if (live_.size() <= id) live_.resize(std::max<std::size_t>(id + std::size_t{1}, 2 * live_.size()));
  live_[id] = block;
  return block->address;
}

// free_block: merged with both neighbours where they are free.
void PytorchModel::free(AllocationId id) {
  Block* block = live_[id];
  live_[id] = nullptr;
  block->allocated = false;
  merge(block, block->before);
  merge(block, block->after);
  block->pool->free_blocks.insert(block);
}

// release_cached_blocks
void PytorchModel::release_cached() {
  release_free(large_);
  release_free(small_);
}

PytorchModel::Block* PytorchModel::new_block(const Block& block) {
  if (unused_.empty()) return &blocks_.emplace_back(block);
  Block* result = unused_.back();
  unused_.pop_back();
  *result = block;
  return result;
}

// get_free_block: the smallest that is large enough, of those the lowest. A block that could grow into
// unmapped addresses behind it counts as larger by these: the search goes on as long as the next block would
// be smaller by this count.
PytorchModel::Block* PytorchModel::take_free(Pool& pool, Bytes bytes, std::uint32_t stream) {
  Block key;
  key.bytes = bytes;
  key.stream = stream;
  auto found = pool.free_blocks.lower_bound(&key);
  if (found == pool.free_blocks.end() || (*found)->stream != stream) return nullptr;
  if (options_.expandable) {
    const auto with_growth = [](const Block* block) {
      const bool grows = block->after != nullptr && !block->after->mapped;
      return block->bytes + (grows ? block->after->bytes : 0);
    };
    for (auto next = std::next(found); next != pool.free_blocks.end() && (*next)->stream == stream &&
                                       with_growth(*next) < with_growth(*found);
         ++next) {
      found = next;
    }
  }
  Block* block = *found;
  pool.free_blocks.erase(found);
  return block;
}

// alloc_block
PytorchModel::Block* PytorchModel::take_new(Pool& pool, Bytes bytes, std::uint32_t stream) {
  return options_.expandable ? take_expanded(pool, bytes, stream) : take_segment(pool, bytes, stream);
}

PytorchModel::Block* PytorchModel::take_segment(Pool& pool, Bytes bytes, std::uint32_t stream) {
  const Bytes segment = segment_bytes(bytes);
  if (!fits(segment)) return nullptr;
  Block block;
  block.address = new_range(segment);
  if (block.address == 0) return nullptr;
  block.bytes = segment;
  block.stream = stream;
  block.pool = &pool;
  reserved_ += segment;
  return new_block(block);
}

// try_allocate_expandable_block: pages are mapped from the candidate on until it is large enough. If pages
// run out, those mapped so far stay in the pool.
PytorchModel::Block* PytorchModel::take_expanded(Pool& pool, Bytes bytes, std::uint32_t stream) {
  Block* block = find_expandable(pool, bytes, stream);
  if (block == nullptr) return nullptr;
  if (!block->mapped && !map(block, std::min(block->bytes, bytes))) return nullptr;
  while (block->bytes < bytes) {
    Block* behind = block->after;
    if (!map(behind, std::min(bytes - block->bytes, behind->bytes))) return nullptr;
    block = behind;
  }
  pool.free_blocks.erase(block);
  return block;
}

// find_expandable_block: returns the lowest unmapped addresses that suffice together with the free bytes
// around them; a new range if there are none.
PytorchModel::Block* PytorchModel::find_expandable(Pool& pool, Bytes bytes, std::uint32_t stream) {
  const auto is_enough = [&](const Block* block) {
    Bytes together = 0;
    for (; together < bytes && block != nullptr && !block->allocated; block = block->after)
      together += block->bytes;
    return together >= bytes;
  };
  Block key;
  key.stream = stream;
  for (auto at = pool.unmapped.lower_bound(&key); at != pool.unmapped.end() && (*at)->stream == stream;
       ++at) {
    Block* candidate = *at;
    if (candidate->before != nullptr && !candidate->before->allocated) candidate = candidate->before;
    if (is_enough(candidate)) return candidate;
  }
  Block range;
  range.bytes = range_bytes(pool);
  if (range.bytes < bytes) return nullptr;
  range.address = range.segment = new_range(range.bytes);
  if (range.address == 0) return nullptr;
  range.stream = stream;
  range.pool = &pool;
  range.mapped = false;
  Block* block = new_block(range);
  pool.unmapped.insert(block);
  return block;
}

// should_split
bool PytorchModel::should_split(const Block& block, Bytes bytes) const {
  const Bytes rest = block.bytes - bytes;
  return block.pool->is_small || options_.expandable ? rest >= least_block : rest > most_small;
}

// alloc_found_block: the front is used, the rest stays free.
void PytorchModel::split(Block* block, Bytes bytes) {
  cut_behind(block, bytes, true);
  block->pool->free_blocks.insert(block->after);
}

void PytorchModel::cut_behind(Block* block, Bytes bytes, bool mapped) {
  Block rest = *block;
  rest.address += bytes;
  rest.bytes -= bytes;
  rest.mapped = mapped;
  rest.allocated = false;
  rest.before = block;
  Block* behind = new_block(rest);
  if (behind->after != nullptr) behind->after->before = behind;
  block->after = behind;
  block->bytes = bytes;
}

// try_merge_blocks: `block`, in no set itself, takes over a neighbour that is free as it is.
void PytorchModel::merge(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->allocated || neighbour->mapped != block->mapped) return;
  if (neighbour->mapped) {
    neighbour->pool->free_blocks.erase(neighbour);
  } else {
    neighbour->pool->unmapped.erase(neighbour);
  }
  block->bytes += neighbour->bytes;
  if (neighbour == block->before) {
    block->address = neighbour->address;
    block->before = neighbour->before;
    if (block->before != nullptr) block->before->after = block;
  } else {
    block->after = neighbour->after;
    if (block->after != nullptr) block->after->before = block;
  }
  drop(neighbour);
}

// map_block: maps whole pages from the block's address on, where a page begins. Returns false if the pages do
// not fit.
bool PytorchModel::map(Block* block, Bytes bytes) {
  const Bytes mapped = round_up(bytes, block->pool->page_bytes());
  if (!fits(mapped)) return false;
  block->pool->unmapped.erase(block);
  if (mapped < block->bytes) {
    cut_behind(block, mapped, false);
    block->pool->unmapped.insert(block->after);
  }
  block->mapped = true;
  merge(block, block->before);
  merge(block, block->after);
  block->pool->free_blocks.insert(block);
  reserved_ += mapped;
  return true;
}

// unmap_block: the whole pages inside a free block.
void PytorchModel::unmap(Block* block) {
  Pool& pool = *block->pool;
  const Bytes page = pool.page_bytes();
  const Bytes first = block->address - block->segment, last = first + block->bytes;
  const Bytes begin = round_up(first, page), end = last / page * page;
  if (begin >= end) return;
  pool.free_blocks.erase(block);
  if (end < last) {
    cut_behind(block, end - first, true);
    pool.free_blocks.insert(block->after);
  }
  if (first < begin) {
    cut_behind(block, begin - first, true);
    pool.free_blocks.insert(block);
    block = block->after;
  }
  block->mapped = false;
  merge(block, block->before);
  merge(block, block->after);
  pool.unmapped.insert(block);
  reserved_ -= end - begin;
  if (block->before == nullptr && block->after == nullptr) {  // release_expandable_segment
    pool.unmapped.erase(block);
    drop(block);
  }
}

// release_blocks: of segments, those that are free as a whole.
void PytorchModel::release_free(Pool& pool) {
  const std::vector<Block*> free_blocks(pool.free_blocks.begin(), pool.free_blocks.end());
  for (Block* block : free_blocks) {
    if (options_.expandable) {
      unmap(block);
    } else if (block->before == nullptr && block->after == nullptr) {
      release_segment(block);
    }
  }
}

// release_block
void PytorchModel::release_segment(Block* block) {
  block->pool->free_blocks.erase(block);
  reserved_ -= block->bytes;
  drop(block);
}

// Returns 0 if there are no addresses left.
std::uint64_t PytorchModel::new_range(Bytes bytes) {
  if (bytes > last_address - next_address_) return 0;
  const std::uint64_t address = next_address_;
  next_address_ += bytes;
  return address;
}

// An expandable segment reserves addresses for 1 1/8 of the device's memory.
Bytes PytorchModel::range_bytes(const Pool& pool) const {
  const Bytes limit = std::min(options_.limit, longest_range);
  return round_up(limit + limit / 8, pool.page_bytes());
}

}  // namespace stowage
