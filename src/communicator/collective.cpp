#include "src/communicator/collective.h"

#include <fmt/core.h>

#include <algorithm>

namespace stowage::communication {
namespace {

// Appends the access, joined to the last one if it continues or repeats it.
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

void expect_apart(const Call& call, Bytes sent, Bytes received) {
  const Buffers& buffers = call.buffers;
  if (buffers.send < buffers.receive + received && buffers.receive < buffers.send + sent)
    throw InvalidInput(
        fmt::format("{}: the buffers overlap; give it two that do not", to_string(call.collective.kind)));
}

void expect_cut(const Collective& collective, int size) {
  if (collective.whole <= static_cast<Bytes>(size) * collective.bytes) return;
  throw InvalidInput(fmt::format("{}: {} bytes are more than {} shares of {}; make shares larger",
                                 to_string(collective.kind), collective.whole, size, collective.bytes));
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

std::vector<Access> accesses_of(const Collective& collective, int rank, int size, const Buffers& buffers) {
  std::vector<Access> accesses;
  for (int other = 0; other < size; ++other)
    if (const auto sent = block_between(collective, buffers, rank, other))
      add(accesses, {const_cast<std::byte*>(buffers.send) + sent->from, sent->bytes, AccessMode::read});
  for (int other = 0; other < size; ++other)
    if (const auto received = block_between(collective, buffers, other, rank))
      add(accesses, {buffers.receive + received->to, received->bytes, AccessMode::write});
  return accesses;
}

Call all_gather_call(int rank, int size, const void* share, void* whole, Bytes share_bytes,
                     Bytes whole_bytes) {
  Call call{{CollectiveKind::all_gather, 0, share_bytes, whole_bytes},
            {static_cast<const std::byte*>(share), static_cast<std::byte*>(whole)}};
  expect_cut(call.collective, size);
  const auto own = block_between(call.collective, rank, rank);
  if (!own) return call;
  call.buffers.in_place = call.buffers.send == call.buffers.receive + own->to;
  if (!call.buffers.in_place) expect_apart(call, own->bytes, whole_bytes);
  return call;
}

Call exchange_call(int size, const void* whole, void* shares, Bytes share_bytes, Bytes whole_bytes) {
  Call call{{CollectiveKind::exchange, 0, share_bytes, whole_bytes},
            {static_cast<const std::byte*>(whole), static_cast<std::byte*>(shares)}};
  expect_cut(call.collective, size);
  expect_apart(call, whole_bytes, static_cast<Bytes>(size) * share_bytes);
  return call;
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

RankFailure mismatch(const Collective& of_rank_0, const Collective& of_rank, int rank) {
  return {rank, to_string(of_rank.kind),
          fmt::format(
              "rank 0 calls {} where rank {} calls {}: let all ranks make the same calls in the same order",
              describe(of_rank_0), rank, describe(of_rank))};
}

}  // namespace stowage::communication
