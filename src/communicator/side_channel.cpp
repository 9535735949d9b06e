#include "src/communicator/side_channel.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace stowage::communication {
namespace {

constexpr const char* loopback = "127.0.0.1";
constexpr int connect_milliseconds = 30'000;  // ranks come here together, so this is ample
constexpr std::size_t most_text = 4096;       // of a message: less than any socket buffers

struct Greeting {
  std::uint64_t key = 0;
  std::int32_t rank = 0;
  std::int32_t unused = 0;
};

enum class MessageKind : std::uint32_t { failed, ended };
// Followed by the two texts.
struct MessageHead {
  MessageKind kind = MessageKind::failed;
  std::int32_t rank = 0;
  std::uint32_t call_bytes = 0;
  std::uint32_t reason_bytes = 0;
};

// The first address of this machine that others may reach; else the loopback's.
std::string own_host() {
  ifaddrs* all = nullptr;
  std::string host = loopback;
  if (getifaddrs(&all) != 0) return host;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    const auto* const address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    if (std::string_view(text.data()).starts_with("127.")) continue;
    host = text.data();
    break;
  }
  freeifaddrs(all);
  return host;
}

template <std::size_t size>
void put(std::array<char, size>& to, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), size - 1), to.begin());
}

bool send_whole(int socket, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool readable_in_time(int file) {
  pollfd entry{file, POLLIN, 0};
  int ready = 0;
  do ready = poll(&entry, 1, connect_milliseconds);
  while (ready < 0 && errno == EINTR);
  return ready == 1;
}

// A machine that is gone closes nothing: the system asks for it each second, and gives up behind three of
// them.
void keep_alive(int socket) {
  const int on = 1, seconds = 1, times = 3;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string message(MessageKind kind, const RankFailure& failure) {
  const std::string call = failure.call.substr(0, most_text), reason = failure.reason.substr(0, most_text);
  const MessageHead head{kind, failure.rank, static_cast<std::uint32_t>(call.size()),
                         static_cast<std::uint32_t>(reason.size())};
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + call + reason;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

SideChannel::SideChannel(std::string call)
    : call_(std::move(call)),
      listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof any;
  const int socket = listening_.number();
  if (socket < 0 || stop_.number() < 0) fail("no socket is to be had");
  if (bind(socket, reinterpret_cast<const sockaddr*>(&any), length) != 0 || listen(socket, SOMAXCONN) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&any), &length) != 0)
    fail("nothing can listen here");
  std::array<char, 256> machine{};
  gethostname(machine.data(), machine.size() - 1);
  address_.machine = machine;
  put(address_.host, own_host());
  address_.port = ntohs(any.sin_port);
  std::random_device random;
  address_.key = (std::uint64_t{random()} << 32) | random();
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
  for (int lower = 0; lower < rank; ++lower) {
    Descriptor connection = connected_to(addresses[static_cast<std::size_t>(lower)], lower);
    peers_.push_back({lower, std::move(connection), {}, false});
  }
  while (peers_.size() + 1 < addresses.size()) accept_one(addresses.size());
  for (const Peer& peer : peers_) keep_alive(peer.connection.number());
  watching_ = std::thread([this] { watch(); });
}

Descriptor SideChannel::connected_to(const Address& address, int rank) const {
  Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  inet_pton(AF_INET, address.machine == address_.machine ? loopback : address.host.data(), &to.sin_addr);
  const Greeting greeting{address.key, rank_, 0};
  if (::connect(connection.number(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      !send_whole(connection.number(), &greeting, sizeof greeting))
    fail(fmt::format("rank {} at {}:{} does not answer", rank, address.host.data(), address.port).c_str());
  return connection;
}

void SideChannel::accept_one(std::size_t ranks) {
  if (!readable_in_time(listening_.number())) fail("a rank has not come");
  Descriptor connection(accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  Greeting greeting;
  if (connection.number() < 0 || !readable_in_time(connection.number())) return;  // a stranger
  if (recv(connection.number(), &greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting) return;
  if (greeting.key != address_.key || greeting.rank <= rank_ ||
      static_cast<std::size_t>(greeting.rank) >= ranks)
    return;
  peers_.push_back({greeting.rank, std::move(connection), {}, false});
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

void SideChannel::fail(const char* what) const {
  throw CommunicatorError(
      fmt::format("{}: {} ({}): let the ranks' machines reach each other by TCP, or start all ranks on one",
                  call_, what, std::strerror(errno)),
      call_, rank_);
}

}  // namespace stowage::communication
