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
  Interval at;      // bytes of the heap
  Bytes asked = 0;  // as the caller asked, at most the length of `at`
  Cache* cache = nullptr;
  Block* next = nullptr;    // in a bin
  std::uint64_t count = 0;  // releases of its lane when it was released
  bool live = false;
  bool is_planned = false;           // in the plans' region
  std::uint32_t ticket = no_ticket;  // of the plan server, while the block is live
  std::vector<Stream*> users;        // other streams that were recorded
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
  static constexpr Bytes unit = 512;  // blocks begin at and end at multiples

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
