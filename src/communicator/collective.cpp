#include "src/communicator/collective.h"

#include <fmt/core.h>

#include <algorithm>

namespace stowage::communication {

const char* to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::exchange:
      return "exchange";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::barrier:
      return "barrier";
  }
  return "unknown";
}

std::string describe(const Collective& collective) {
  const char* const name = to_string(collective.kind);
  switch (collective.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::exchange:
      return fmt::format("{} of shares of {} bytes, {} in all", name, collective.bytes, collective.whole);
    case CollectiveKind::broadcast:
      return fmt::format("{} of {} bytes from rank {}", name, collective.bytes, collective.root);
    case CollectiveKind::barrier:
      break;
  }
  return name;
}

std::optional<Block> block_between(const Collective& collective, int sender, int receiver) {
  const auto share_of = [&](int rank) {
    const Bytes begin = static_cast<Bytes>(rank) * collective.bytes;
    return Block{begin, begin,
                 std::min(collective.bytes, collective.whole - std::min(begin, collective.whole))};
  };
  Block block;
  switch (collective.kind) {
    case CollectiveKind::all_gather:
      block = share_of(sender);
      block.from = 0;
      break;
    case CollectiveKind::exchange:
      block = share_of(receiver);
      block.to = static_cast<Bytes>(sender) * collective.bytes;
      break;
    case CollectiveKind::broadcast:
      if (sender == collective.root && sender != receiver) block.bytes = collective.bytes;
      break;
    case CollectiveKind::barrier:
      break;
  }
  if (block.bytes == 0) return std::nullopt;
  return block;
}

std::optional<Block> block_between(const Collective& collective, const Buffers& buffers, int sender,
                                   int receiver) {
  if (sender == receiver && buffers.in_place) return std::nullopt;
  return block_between(collective, sender, receiver);
}

double peer_seconds(const Collective& collective, int size, const Link& peer) {
  if (size == 1 || collective.kind == CollectiveKind::barrier) return 0;
  const bool whole = collective.kind == CollectiveKind::broadcast;
  return peer.seconds(whole ? collective.bytes : static_cast<Bytes>(size - 1) * collective.bytes);
}

CommunicatorError error_of(std::string_view call, const RankFailure& failure) {
  const std::string in = failure.call.empty() ? std::string{} : " in " + failure.call;
  return {fmt::format("{}: rank {} failed{}: {}. End this step on every rank, then make new communicators",
                      call, failure.rank, in, failure.reason),
          std::string(call), failure.rank};
}

RankFailure mismatch(const Collective& of_rank_0, const Collective& of_rank, int rank) {
  return {rank, to_string(of_rank.kind),
          fmt::format(
              "rank 0 calls {} where rank {} calls {}: let all ranks make the same calls in the same order",
              describe(of_rank_0), rank, describe(of_rank))};
}

}  // namespace stowage::communication
