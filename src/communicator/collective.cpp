#include "src/communicator/collective.h"

#include <fmt/core.h>

namespace stowage::communication {
namespace {

// Joined to the one before where it goes on there, or is the same.
void add(std::vector<Access>& accesses, const Access& access) {
  if (!accesses.empty() && accesses.back().mode == access.mode) {
    Access& last = accesses.back();
    if (last.address == access.address && last.bytes == access.bytes) return;
    if (static_cast<std::byte*>(last.address) + last.bytes == access.address) {
      last.bytes += access.bytes;
      return;
    }
  }
  accesses.push_back(access);
}

}  // namespace

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
      return fmt::format("{} of shares of {} bytes", name, collective.bytes);
    case CollectiveKind::exchange:
      return fmt::format("{} of pieces of {} bytes", name, collective.bytes);
    case CollectiveKind::broadcast:
      return fmt::format("{} of {} bytes from rank {}", name, collective.bytes, collective.root);
    case CollectiveKind::barrier:
      break;
  }
  return name;
}

std::optional<Block> block_between(const Collective& collective, int sender, int receiver) {
  if (collective.bytes == 0) return std::nullopt;
  const Bytes at_sender = static_cast<Bytes>(receiver) * collective.bytes;
  const Bytes at_receiver = static_cast<Bytes>(sender) * collective.bytes;
  switch (collective.kind) {
    case CollectiveKind::all_gather:
      if (sender == receiver) return std::nullopt;
      return Block{0, at_receiver};
    case CollectiveKind::exchange:
      return Block{at_sender, at_receiver};
    case CollectiveKind::broadcast:
      if (sender != collective.root || sender == receiver) return std::nullopt;
      return Block{};
    case CollectiveKind::barrier:
      break;
  }
  return std::nullopt;
}

std::vector<Access> accesses_of(const Collective& collective, int rank, int size, const Buffers& buffers) {
  std::vector<Access> accesses;
  for (int other = 0; other < size; ++other)
    if (const auto sent = block_between(collective, rank, other))
      add(accesses, {const_cast<std::byte*>(buffers.send) + sent->from, collective.bytes, AccessMode::read});
  for (int other = 0; other < size; ++other)
    if (const auto received = block_between(collective, other, rank))
      add(accesses, {buffers.receive + received->to, collective.bytes, AccessMode::write});
  return accesses;
}

void expect_apart(const Buffers& buffers, Bytes bytes) {
  if (buffers.send < buffers.receive + bytes && buffers.receive < buffers.send + bytes)
    throw InvalidInput("exchange: the buffers overlap; give it two that do not");
}

void expect_rank(int root, int size) {
  if (root < 0 || root >= size)
    throw InvalidInput(fmt::format("broadcast: there is no rank {}; give it one of 0 to {}", root, size - 1));
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
