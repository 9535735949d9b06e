#include "stowage/stream_memory.h"

#include <fmt/core.h>

#include <bit>
#include <cstdio>
#include <exception>
#include <vector>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t best_alignment = 512;  // alignment that every block has

void expect_alignment(std::size_t alignment) {
  if (!std::has_single_bit(alignment) || alignment > best_alignment)
    throw InvalidInput(fmt::format("memory resource: alignment {} is no power of two up to {}; ask for one",
                                   alignment, best_alignment));
}

}  // namespace

StreamMemory::~StreamMemory() {
  std::vector<LaneId> lanes = streams_.lanes();
  lanes.push_back(own_.id());
  for (const LaneId lane : lanes) {
    try {
      allocator_.retire_stream(lane);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "stowage: %s\n", error.what());
    }
  }
}

void* StreamMemory::allocate(Bytes bytes, std::size_t alignment, void* stream) {
  expect_alignment(alignment);
  return bytes == 0 ? nullptr : allocator_.allocate_raw(bytes, streams_.lane(stream));
}

void StreamMemory::release(void* address, void* stream) {
  if (address != nullptr) allocator_.release_raw(address, streams_.lane(stream));
}

void* StreamMemory::allocate_for_all(Bytes bytes, std::size_t alignment) {
  expect_alignment(alignment);
  if (bytes == 0) return nullptr;
  void* const address = allocator_.allocate_raw(bytes, own_.id());
  try {
    device_.synchronise_lane(own_.id());
  } catch (...) {
    allocator_.release_raw(address);
    throw;
  }
  return address;
}

void StreamMemory::release_unused(void* address) {
  if (address != nullptr) allocator_.release_raw(address, own_.id());
}

void StreamMemory::forget_stream(void* stream) {
  LaneId lane = 0;
  if (!streams_.find(stream, lane)) return;
  allocator_.retire_stream(lane);
  streams_.forget(stream);
}

}  // namespace stowage
