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
  int root = 0;     // of a broadcast
  Bytes bytes = 0;  // of a share, or of all that is broadcast
  Bytes whole = 0;  // of all shares; of a rank's whole that it exchanges
  friend bool operator==(const Collective&, const Collective&) = default;
};
static_assert(std::has_unique_object_representations_v<Collective>);  // ranks send it: no padding, which may
                                                                      // hold anything
std::string describe(const Collective& collective);                   // "exchange of pieces of 64 bytes"

// One rank's side. broadcast: the root sends, others receive.
struct Buffers {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  bool in_place =
      false;  // of all_gather: `send` is at its place in `receive`, so nothing goes from a rank to itself
};

// Bytes [from, from + bytes) of the sender's `send` go to [to, to + bytes) of the receiver's `receive`.
struct Block {
  Bytes from = 0;
  Bytes to = 0;
  Bytes bytes = 0;
};
// Which bytes the sender sends to the receiver, which may be the same rank; nullopt if it sends none.
std::optional<Block> block_between(const Collective& collective, int sender, int receiver);
// The same of a rank that has these buffers.
std::optional<Block> block_between(const Collective& collective, const Buffers& buffers, int sender,
                                   int receiver);

// What rank `rank` reads and writes of its own memory.
std::vector<Access> accesses_of(const Collective& collective, int rank, int size, const Buffers& buffers);

// What a rank has called. Throw InvalidInput: buffers that overlap, a whole that is more than all shares; the
// root of a broadcast.
struct Call {
  Collective collective;
  Buffers buffers;
};
Call all_gather_call(int rank, int size, const void* share, void* whole, Bytes share_bytes,
                     Bytes whole_bytes);
Call exchange_call(int size, const void* whole, void* shares, Bytes share_bytes, Bytes whole_bytes);
void expect_rank(int root, int size);

// How long it takes: what a rank receives, as one transfer over its link.
double peer_seconds(const Collective& collective, int size, const Link& peer);

// What rank `rank` calls is not what rank 0 does.
RankFailure mismatch(const Collective& of_rank_0, const Collective& of_rank, int rank);

}  // namespace stowage::communication
