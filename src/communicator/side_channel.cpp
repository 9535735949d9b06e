#include "src/communicator/side_channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace stowage::communication {
namespace {

constexpr std::size_t most_text = 4096;  // of a message: less than any socket buffers

enum class MessageKind : std::uint32_t { failed, ended };
// Followed by the two texts.
struct MessageHead {
  MessageKind kind = MessageKind::failed;
  std::int32_t rank = 0;
  std::uint32_t call_bytes = 0;
  std::uint32_t reason_bytes = 0;
};

std::string message(MessageKind kind, const RankFailure& failure) {
  const std::string call = failure.call.substr(0, most_text), reason = failure.reason.substr(0, most_text);
  const MessageHead head{kind, failure.rank, static_cast<std::uint32_t>(call.size()),
                         static_cast<std::uint32_t>(reason.size())};
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + call + reason;
}

}  // namespace

SideChannel::SideChannel(const std::string& call) : mesh_(call), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (stop_.number() < 0)
    throw CommunicatorError(call + ": no file is to be had: raise the limit (ulimit -n)", call, 0);
}

SideChannel::~SideChannel() {
  send_all(message(MessageKind::ended, {rank_, {}, {}}));
  const std::uint64_t one = 1;
  static_cast<void>(!write(stop_.number(), &one, sizeof one));
  if (watching_.joinable()) watching_.join();
}

void SideChannel::connect(int rank, std::span<const Address> addresses, Watcher watcher) {
  rank_ = rank;
  watcher_ = std::move(watcher);
  std::vector<Descriptor> connections = mesh_.connect(rank, addresses);
  for (std::size_t other = 0; other < connections.size(); ++other)
    if (other != static_cast<std::size_t>(rank))
      peers_.push_back({static_cast<int>(other), std::move(connections[other]), {}, false});
  watching_ = std::thread([this] { watch(); });
}

void SideChannel::tell(const RankFailure& failure) { send_all(message(MessageKind::failed, failure)); }

void SideChannel::send_all(const std::string& message) {
  const MutexLock lock(sending_);
  for (const Peer& peer : peers_)  // one that is gone is the watching's business
    send_whole(peer.connection.number(), message.data(), message.size());
}

void SideChannel::watch() {
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign(1, {stop_.number(), POLLIN, 0});
    for (const Peer& peer : peers_) entries.push_back({peer.done ? -1 : peer.connection.number(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (entries[i + 1].revents != 0) read_from(peers_[i]);
    if (entries.front().revents != 0) return;
  }
}

void SideChannel::read_from(Peer& peer) {
  std::array<char, 4096> bytes{};
  const ssize_t got = recv(peer.connection.number(), bytes.data(), bytes.size(), 0);
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    peer.done = true;
    return watcher_.died(peer.rank);
  }
  peer.received.append(bytes.data(), static_cast<std::size_t>(got));
  while (!peer.done && take_message(peer)) continue;
}

bool SideChannel::take_message(Peer& peer) {
  MessageHead head;
  if (peer.received.size() < sizeof head) return false;
  std::memcpy(&head, peer.received.data(), sizeof head);
  if (head.kind > MessageKind::ended || head.call_bytes > most_text || head.reason_bytes > most_text) {
    peer.done = true;  // it is out of its mind
    watcher_.died(peer.rank);
    return false;
  }
  const std::size_t bytes = sizeof head + head.call_bytes + head.reason_bytes;
  if (peer.received.size() < bytes) return false;
  const RankFailure failure{head.rank, peer.received.substr(sizeof head, head.call_bytes),
                            peer.received.substr(sizeof head + head.call_bytes, head.reason_bytes)};
  peer.received.erase(0, bytes);
  peer.done = head.kind == MessageKind::ended;
  if (peer.done) {
    watcher_.ended(peer.rank);
  } else {
    watcher_.failed(failure);
  }
  return true;
}

}  // namespace stowage::communication
