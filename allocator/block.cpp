#include "allocator/block.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include "stowage/error.h"

namespace stowage::caching {

Block& BlockStore::make() {
  if (idle_ == nullptr) {
    slabs_.push_back(std::make_unique<Block[]>(slab));
    for (std::size_t i = 0; i < slab; ++i) recycle(slabs_.back()[i]);
  }
  Block& block = *idle_;
  idle_ = block.next;
  block.next = nullptr;
  return block;
}

void BlockStore::recycle(Block& block) {
  block.users.clear();
  block.live = block.is_planned = false;
  block.ticket = Block::no_ticket;
  block.next = idle_;
  idle_ = &block;
}

BlockTable::BlockTable(Bytes range) : bytes_(range / unit * sizeof(Block*)) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw OutOfMemory(
        fmt::format("caching allocator: the host has no {} bytes of address space for its table of "
                    "blocks; allow the process more (ulimit -v)",
                    bytes_),
        bytes_, 0);
  entries_ = static_cast<Block**>(memory);
}

BlockTable::~BlockTable() { munmap(static_cast<void*>(entries_), bytes_); }

}  // namespace stowage::caching
