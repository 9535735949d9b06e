// How processes that know no more than where rank 0 listens come together, once.
//
//   rank 0      listens, and gathers a hello of each other rank: who it is, and its share of bytes
//   the others  connect, again and again while nobody listens there yet, say hello, and wait for the answer
//   rank 0      listens no more, and sends all of them the shares of all, by rank; or why there is no group
//
// Who says no hello is a stranger, whom nobody waits for. But a rank of another size, a rank that has come
// already, and one that has ended since then are mistakes of the group, which all that have come are told.
#pragma once

#include <chrono>
#include <cstdint>

#include "stowage/communicator.h"

namespace stowage::communication {

// For how long ranks wait for each other at first.
inline constexpr std::chrono::seconds tcp_patience{60};

// The first message of a rank to rank 0, by which that knows it; the rank's share follows.
struct TcpHello {
  std::uint64_t magic = 0x5354'4f57'4147'4531;  // also of the byte order
  std::uint32_t version = 1;                    // of what is sent here
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint32_t share_bytes = 0;
};

// The rank of that group, whose `all_gather` may be called once. It throws in the name of
// open_tcp_communicator: InvalidInput where the port is in use or the ranks are no group, CommunicatorError
// with the rank that has not come in time, or has ended. Throws InvalidInput: what makes no sense in `group`.
RankOfGroup rank_at(const TcpGroup& group, std::chrono::milliseconds patience = tcp_patience);

}  // namespace stowage::communication
