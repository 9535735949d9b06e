// HostChunks: memory of the host that stands in the place of device memory. The memory is taken from the
// driver in chunks, up to a limit, and cut into pieces.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "allocator/interpose/host_memory.h"
#include "stowage/bytes.h"

namespace stowage::interpose {

// Owner of pieces, whose memory is freed at one time. Pieces of different owners share no chunk.
struct HostOwner {
  CUdevice device = 0;
  std::uint64_t context = 0;  // 0: no context, as for a pool's memory
  friend auto operator<=>(const HostOwner&, const HostOwner&) = default;
};

struct HostPiece {
  CUdeviceptr address = 0;  // 0: the request failed
  bool full = false;        // true: it would exceed the limit; false: the driver refused
};

// Pieces that are smaller than a granule share one, each in the tightest gap of its owner's chunks; others
// have chunks of their own, of whole granules. Both take time logarithmic in the number of pieces. Memory
// that the driver does not take back is offered again. Not thread-safe.
class HostChunks {
 public:
  explicit HostChunks(Bytes limit) : limit_(limit) {}

  // REQUIRES: a context of the owner's device is current.
  HostPiece take(Bytes bytes, const HostOwner& owner);
  void release(CUdeviceptr address);  // REQUIRES: nothing uses the piece any more
  void owner_gone(const HostOwner& owner);
  // Forgets the page-locking that was done in `context`, for pieces of any owner: it ended with the context.
  void context_gone(CUcontext context);
  void retry();
  // Forgets everything, in a child after fork, which has no part in its parent's memory.
  void forget();

  Bytes limit() const { return limit_; }
  Bytes used() const { return used_; }  // host bytes of all chunks

 private:
  struct Chunk {
    HostMemory memory;
    HostOwner owner;
    bool shared = false;
    std::map<Bytes, Bytes> pieces;  // maps the offset of each piece to its bytes
  };
  struct Leftover {
    HostMemory memory;
    unsigned attempts = 0;
  };

  using Gaps = std::set<std::pair<Bytes, CUdeviceptr>>;  // length and begin of each gap

  CUdeviceptr take_of_shared(Bytes bytes, const HostOwner& owner);
  void open_gap(Chunk& chunk, std::map<Bytes, Bytes>::iterator piece);
  bool add_chunk(Bytes bytes, const HostOwner& owner, HostMemory& memory);
  void end(const HostMemory& memory);

  const Bytes limit_;
  Bytes used_ = 0;
  std::map<CUdeviceptr, Chunk> chunks_;
  std::map<HostOwner, Gaps> gaps_;  // gaps of shared chunks
  std::vector<Leftover> leftovers_;
};

}  // namespace stowage::interpose
