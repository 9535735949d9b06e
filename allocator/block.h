// Block: bytes of the heap that a caller has, or that a lane's cache keeps for the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/gap_index.h"

namespace stowage::caching {

class Stream;
struct Cache;

// Blocks share no cache line, since two lanes may have neighbours.
struct alignas(128) Block {
  static constexpr std::uint32_t no_ticket = 0xffffffffU;
  Interval at;      // bytes of the heap that the block has
  Bytes asked = 0;  // size that the caller asked for, at most the length of `at`
  Cache* cache = nullptr;
  Block* next = nullptr;    // the next block of its bin
  std::uint64_t count = 0;  // number of the release, among its lane's releases, that freed this block
  bool live = false;
  bool is_planned = false;           // the block lies in the plans' region
  std::uint32_t ticket = no_ticket;  // the plan server's ticket of a live block
  std::vector<Stream*> users;        // other streams that were recorded as users of the block
};

// Owns all blocks; not synchronised.
class BlockStore {
 public:
  Block& make();
  void recycle(Block& block);

 private:
  static constexpr std::size_t slab = 256;
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* idle_ = nullptr;
};

// The block that begins at an address, in constant time: one entry for each unit of the range, of which the
// host backs only pages that were touched. Entries may be written and read by several threads, each its own.
class BlockTable {
 public:
  static constexpr Bytes unit = 512;  // blocks begin and end at multiples of this

  // Throws OutOfMemory where the host has no address space left.
  explicit BlockTable(Bytes range);
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  ~BlockTable();
  Block*& at(Bytes offset) { return entries_[offset / unit]; }

 private:
  Bytes bytes_;
  Block** entries_;
};

}  // namespace stowage::caching
