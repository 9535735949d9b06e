#include "allocator/interpose/host_chunks.h"

#include <algorithm>
#include <iterator>

namespace stowage::interpose {
namespace {

constexpr Bytes piece_alignment = 512;  // the alignment of the driver's own allocations
constexpr unsigned most_attempts = 16;  // attempts to give back memory that the driver does not take

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
  chunks_[memory.address] = {memory, owner, shared, {{0, aligned}}};
  if (shared) gaps_[owner].insert({whole - aligned, memory.address + aligned});
  return {memory.address, false};
}

// Takes the chunk from the first source that has it.
bool HostChunks::add_chunk(Bytes bytes, const HostOwner& owner, HostMemory& memory) {
  for (const HostSource source : host_sources) {
    used_ += bytes;
    if (take_host_memory(source, owner.device, bytes, memory) == CUDA_SUCCESS) return true;
    end(memory);
  }
  return false;
}

// Gives back the memory of a chunk that is no longer in use.
void HostChunks::end(const HostMemory& memory) {
  HostMemory rest = memory;
  if (give_back(rest)) {
    used_ -= memory.bytes;
  } else {
    leftovers_.push_back({rest, 1});
  }
}

CUdeviceptr HostChunks::take_of_shared(Bytes bytes, const HostOwner& owner) {
  Gaps& gaps = gaps_[owner];
  const auto found = gaps.lower_bound({bytes, 0});
  if (found == gaps.end()) return 0;
  const auto [length, address] = *found;
  gaps.erase(found);
  if (length > bytes) gaps.insert({length - bytes, address + bytes});
  Chunk& chunk = std::prev(chunks_.upper_bound(address))->second;
  chunk.pieces[address - chunk.memory.address] = bytes;
  return address;
}

// Turns a piece into a gap, joined with the gaps beside it. No gap is kept that would fill the whole chunk.
void HostChunks::open_gap(Chunk& chunk, std::map<Bytes, Bytes>::iterator piece) {
  Gaps& gaps = gaps_[chunk.owner];
  const Bytes begin = piece == chunk.pieces.begin() ? 0 : std::prev(piece)->first + std::prev(piece)->second;
  const Bytes end = std::next(piece) == chunk.pieces.end() ? chunk.memory.bytes : std::next(piece)->first;
  const Bytes piece_end = piece->first + piece->second;
  gaps.erase({piece->first - begin, chunk.memory.address + begin});
  gaps.erase({end - piece_end, chunk.memory.address + piece_end});
  if (end - begin < chunk.memory.bytes) gaps.insert({end - begin, chunk.memory.address + begin});
}

void HostChunks::release(CUdeviceptr address) {
  const auto after = chunks_.upper_bound(address);
  if (after == chunks_.begin()) return;
  const auto found = std::prev(after);
  Chunk& chunk = found->second;
  const auto piece = chunk.pieces.find(address - chunk.memory.address);
  if (piece == chunk.pieces.end()) return;
  if (chunk.shared) open_gap(chunk, piece);
  chunk.pieces.erase(piece);
  if (!chunk.pieces.empty()) return;
  const HostMemory memory = chunk.memory;
  chunks_.erase(found);
  end(memory);
}

void HostChunks::owner_gone(const HostOwner& owner) {
  gaps_.erase(owner);
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
  gaps_.clear();
  leftovers_.clear();
}

}  // namespace stowage::interpose
