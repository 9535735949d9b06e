#include "src/communicator/tcp_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

namespace stowage::communication {
namespace {

// How long the side channel may take to say why a connection is lost.
constexpr std::chrono::seconds patience_for_news{2};

// Where a rank listens: for news, and for blocks.
struct Introduction {
  TcpMesh::Address side_channel;
  TcpMesh::Address data;
};

// What each rank sends the others of a collective.
struct WireHead {
  std::uint32_t kind = 0;
  std::int32_t root = 0;
  std::uint64_t bytes = 0;
  std::uint64_t whole = 0;
  double time = 0;
};

WireHead head_of(const Collective& collective, double time) {
  return {static_cast<std::uint32_t>(collective.kind), collective.root, collective.bytes, collective.whole,
          time};
}

bool makes_sense(const WireHead& head) {
  return head.kind <= static_cast<std::uint32_t>(CollectiveKind::barrier) && std::isfinite(head.time);
}

Collective collective_of(const WireHead& head) {
  return {static_cast<CollectiveKind>(head.kind), head.root, head.bytes, head.whole};
}

bool is_broken(ssize_t answer) {
  return answer < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
}

}  // namespace

TcpTransport::TcpTransport(const RankOfGroup& group, const Link& peer)
    : peer_(peer),
      rank_(group.rank),
      ways_(static_cast<std::size_t>(group.size)),
      ended_(static_cast<std::size_t>(group.size)),
      news_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TcpMesh mesh(call_);
  side_channel_.emplace(call_);
  std::vector<Introduction> all(ways_.size());
  all[static_cast<std::size_t>(rank_)] = {side_channel_->address(), mesh.address()};
  group.all_gather(all.data(), sizeof(Introduction));
  std::vector<TcpMesh::Address> of_side_channel, of_data;
  for (const Introduction& introduction : all) {
    of_side_channel.push_back(introduction.side_channel);
    of_data.push_back(introduction.data);
  }
  side_channel_->connect(rank_, of_side_channel, watcher());
  try {
    std::vector<Descriptor> connections = mesh.connect(rank_, of_data, [this](int missing) {
      const auto failure = failure_.get();
      if (failure && failure->rank == missing) throw error_of(call_, *failure);
    });
    for (std::size_t other = 0; other < ways_.size(); ++other)
      ways_[other].connection = std::move(connections[other]);
  } catch (const std::exception& error) {
    fail({rank_, call_, error.what()});
    throw;
  }
}

// The others hear why before they hear that this rank has ended, though it be on its way from another rank.
TcpTransport::~TcpTransport() {
  if (const auto failure = failure_.get()) side_channel_->tell(*failure);
}

SideChannel::Watcher TcpTransport::watcher() {
  return {[this](const RankFailure& failure) {
            failure_.keep(failure);
            wake();
          },
          [this](int dead) {
            failure_.keep({dead, {}, "its process ended without a word: see what it printed last"});
            wake();
          },
          [this](int ended) {
            ended_[static_cast<std::size_t>(ended)] = true;
            wake();
          }};
}

std::span<const Announcement> TcpTransport::announce(Announcement announcement) {
  failure_.expect_none(to_string(announcement.collective.kind));
  return {};
}

double TcpTransport::move(const Collective& collective, const Buffers& buffers,
                          const simulated::Arrival& arrival) {
  call_ = to_string(collective.kind);
  const double latest = exchange_heads(collective, arrival.time);
  prepare_blocks(collective, buffers);
  transfer();
  return latest + peer_seconds(collective, size(), peer_);
}

double TcpTransport::exchange_heads(const Collective& collective, double time) {
  std::vector<WireHead> heads(ways_.size(), head_of(collective, time));
  const WireHead own = heads[static_cast<std::size_t>(rank_)];
  for (std::size_t other = 0; other < ways_.size(); ++other) {
    if (ways_[other].connection.number() < 0) continue;
    ways_[other].to_send = std::as_bytes(std::span(&own, 1));
    ways_[other].to_receive = std::as_writable_bytes(std::span(&heads[other], 1));
  }
  transfer();
  double latest = time;
  const Collective first = collective_of(heads.front());
  for (int other = 0; other < size(); ++other) {
    const WireHead& head = heads[static_cast<std::size_t>(other)];
    if (!makes_sense(head)) {
      fail({other, call_, "it sends what is no call: install the same build on all machines"});
      failure_.expect_none(call_);
    }
    if (collective_of(head) != first) {
      fail(mismatch(first, collective_of(head), other));
      failure_.expect_none(call_);
    }
    latest = std::max(latest, head.time);
  }
  return latest;
}

// What goes from this rank to itself has no way to go.
void TcpTransport::prepare_blocks(const Collective& collective, const Buffers& buffers) {
  for (int other = 0; other < size(); ++other) {
    Way& way = ways_[static_cast<std::size_t>(other)];
    const auto sent = block_between(collective, buffers, rank_, other);
    const auto received = block_between(collective, buffers, other, rank_);
    if (other == rank_) {
      if (sent) std::memcpy(buffers.receive + sent->to, buffers.send + sent->from, sent->bytes);
      continue;
    }
    if (sent) way.to_send = {buffers.send + sent->from, sent->bytes};
    if (received) way.to_receive = {buffers.receive + received->to, received->bytes};
  }
}

// What has arrived counts, though a rank has failed meanwhile. A lost connection is the end, but the side
// channel knows better why, so it has its time.
void TcpTransport::transfer() {
  std::optional<Deadline> deadline;  // for news of a lost connection
  while (!advance()) {
    if (const auto lost = lost_rank()) {
      if (ended_[static_cast<std::size_t>(*lost)]) fail({*lost, {}, "it has ended its communicator"});
      if (deadline && std::chrono::steady_clock::now() >= *deadline)
        fail({*lost, call_, "its connection is lost"});
      if (!deadline) deadline = in_time(patience_for_news);
    }
    failure_.expect_none(call_);
    wait_for_ways(deadline);
  }
}

// True: all is done.
bool TcpTransport::advance() {
  bool done = true;
  for (Way& way : ways_) {
    way.advance();
    done = done && way.is_done();
  }
  return done;
}

void TcpTransport::Way::advance() {
  if (!to_send.empty() && !lost) {
    const ssize_t sent =
        send(connection.number(), to_send.data(), to_send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) to_send = to_send.subspan(static_cast<std::size_t>(sent));
    lost = is_broken(sent);
  }
  if (!to_receive.empty() && !lost) {
    const ssize_t got = recv(connection.number(), to_receive.data(), to_receive.size(), MSG_DONTWAIT);
    if (got > 0) to_receive = to_receive.subspan(static_cast<std::size_t>(got));
    lost = got == 0 || is_broken(got);
  }
}

// Until one may go on, there is news, or the deadline.
void TcpTransport::wait_for_ways(std::optional<Deadline> deadline) {
  std::vector<pollfd> entries{{news_.number(), POLLIN, 0}};
  for (const Way& way : ways_) {
    if (way.is_done() || way.lost) continue;
    const int events = (way.to_send.empty() ? 0 : POLLOUT) | (way.to_receive.empty() ? 0 : POLLIN);
    entries.push_back({way.connection.number(), static_cast<short>(events), 0});
  }
  poll_until(entries, deadline);
  std::uint64_t count = 0;
  static_cast<void>(!read(news_.number(), &count, sizeof count));
}

std::optional<int> TcpTransport::lost_rank() const {
  for (int other = 0; other < size(); ++other)
    if (ways_[static_cast<std::size_t>(other)].lost) return other;
  return std::nullopt;
}

void TcpTransport::fail(const RankFailure& failure) {
  if (!failure_.keep(failure)) return;
  side_channel_->tell(failure);
  wake();
}

void TcpTransport::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!write(news_.number(), &one, sizeof one));
}

}  // namespace stowage::communication
