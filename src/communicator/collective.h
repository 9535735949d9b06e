// A collective as plain data: what all ranks must agree on, and which bytes go from where to where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/channel.h"
#include "stowage/device.h"
#include "stowage/error.h"
#include "stowage/machine.h"

namespace stowage::communication {

enum class CollectiveKind : std::uint32_t { all_gather, exchange, broadcast, barrier };
const char* to_string(CollectiveKind kind);  // the call's name

struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  int root = 0;     // root of a broadcast
  Bytes bytes = 0;  // size of a share, or of a broadcast's data
  Bytes whole = 0;  // size of all shares together, or of all that a rank exchanges
  friend bool operator==(const Collective&, const Collective&) = default;
};
// Ranks send its bytes: it must have no padding, which may hold anything.
static_assert(std::has_unique_object_representations_v<Collective>);
std::string describe(const Collective& collective);  // "exchange of pieces of 64 bytes"

// A rank's buffers. In a broadcast the root sends and the others receive.
struct Buffers {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  bool in_place = false;  // all_gather: `send` lies at its place in `receive`, and is not copied
};

// Bytes [from, from + bytes) of the sender's `send` go to [to, to + bytes) of the receiver's `receive`.
struct Block {
  Bytes from = 0;
  Bytes to = 0;
  Bytes bytes = 0;
};
// Returns the bytes that the sender sends to the receiver, possibly the same rank; nullopt if there are none.
std::optional<Block> block_between(const Collective& collective, int sender, int receiver);
// Same, for a rank with these buffers: returns nullopt also if `in_place` saves the copy.
std::optional<Block> block_between(const Collective& collective, const Buffers& buffers, int sender,
                                   int receiver);

// Returns the parts of its own memory that rank `rank` reads and writes.
std::vector<Access> accesses_of(const Collective& collective, int rank, int size, const Buffers& buffers);

// A rank's call. The functions below throw InvalidInput for buffers that overlap, a whole larger than all
// shares, and a root that is no rank.
struct Call {
  Collective collective;
  Buffers buffers;
};
Call all_gather_call(int rank, int size, const void* share, void* whole, Bytes share_bytes,
                     Bytes whole_bytes);
Call exchange_call(int size, const void* whole, void* shares, Bytes share_bytes, Bytes whole_bytes);
void expect_rank(int root, int size);

// Seconds that a collective takes: the bytes that a rank receives, as one transfer over its link.
double peer_seconds(const Collective& collective, int size, const Link& peer);

// The failure of rank `rank` for a call that differs from rank 0's.
RankFailure mismatch(const Collective& of_rank_0, const Collective& of_rank, int rank);

}  // namespace stowage::communication
