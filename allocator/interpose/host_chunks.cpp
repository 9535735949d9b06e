#include "allocator/interpose/host_chunks.h"

#include <algorithm>
#include <iterator>

namespace stowage::interpose {
namespace {

constexpr Bytes piece_alignment = 512;  // that of the driver's own
constexpr unsigned most_attempts = 16;  // to give back what the driver does not take

Bytes round_up(Bytes bytes, Bytes to) { return (bytes + to - 1) / to * to; }

}  // namespace

HostPiece HostChunks::take(Bytes bytes, const HostOwner& owner) {
  if (bytes == 0 || bytes > limit_) return {0, true};
  const Bytes aligned = round_up(bytes, piece_alignment);
  const bool shared = aligned < host_granule;
  if (shared) {
    if (const CUdeviceptr address = take_of_shared(aligned, owner)) return {address, false};
  }
  const Bytes whole = round_up(aligned, host_granule);
  if (whole > limit_ || used_ > limit_ - whole) return {0, true};
  HostMemory memory;
  if (!add_chunk(whole, owner, memory)) return {0, false};
  Chunk& chunk = chunks_[memory.address] = {memory, owner, shared, {}};
  return {take_of(chunk, aligned), false};
}

// From the first source that has it.
bool HostChunks::add_chunk(Bytes bytes, const HostOwner& owner, HostMemory& memory) {
  for (const HostSource source : host_sources) {
    used_ += bytes;
    if (take_host_memory(source, owner.device, bytes, memory) == CUDA_SUCCESS) return true;
    end(memory);
  }
  return false;
}

// Of a chunk that is in use no more.
void HostChunks::end(const HostMemory& memory) {
  HostMemory rest = memory;
  if (give_back(rest)) {
    used_ -= memory.bytes;
  } else {
    leftovers_.push_back({rest, 1});
  }
}

CUdeviceptr HostChunks::take_of_shared(Bytes bytes, const HostOwner& owner) {
  for (auto& [start, chunk] : chunks_) {
    if (!chunk.shared || !(chunk.owner == owner)) continue;
    if (const CUdeviceptr address = take_of(chunk, bytes)) return address;
  }
  return 0;
}

// The first gap that is large enough; 0 where none is.
CUdeviceptr HostChunks::take_of(Chunk& chunk, Bytes bytes) {
  Bytes start = 0;
  for (const auto& [offset, size] : chunk.pieces) {
    if (offset - start >= bytes) break;
    start = offset + size;
  }
  if (chunk.memory.bytes - start < bytes) return 0;
  chunk.pieces[start] = bytes;
  return chunk.memory.address + start;
}

void HostChunks::release(CUdeviceptr address) {
  const auto after = chunks_.upper_bound(address);
  if (after == chunks_.begin()) return;
  const auto found = std::prev(after);
  Chunk& chunk = found->second;
  if (chunk.pieces.erase(address - chunk.memory.address) == 0 || !chunk.pieces.empty()) return;
  const HostMemory memory = chunk.memory;
  chunks_.erase(found);
  end(memory);
}

void HostChunks::owner_gone(const HostOwner& owner) {
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    if (!(at->second.owner == owner)) {
      ++at;
      continue;
    }
    const HostMemory memory = at->second.memory;
    at = chunks_.erase(at);
    end(memory);
  }
}

void HostChunks::context_gone(CUcontext context) {
  const auto forget_in = [&](HostMemory& memory) {
    if (memory.context == context) memory.pinned = nullptr;
  };
  for (auto& [start, chunk] : chunks_) forget_in(chunk.memory);
  for (Leftover& leftover : leftovers_) forget_in(leftover.memory);
}

void HostChunks::retry() {
  std::erase_if(leftovers_, [this](Leftover& leftover) {
    const bool gone = give_back(leftover.memory);
    if (gone) used_ -= leftover.memory.bytes;
    return gone || ++leftover.attempts > most_attempts;
  });
}

void HostChunks::forget() {
  used_ = 0;
  chunks_.clear();
  leftovers_.clear();
}

}  // namespace stowage::interpose
