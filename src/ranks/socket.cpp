#include "src/ranks/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace stowage::ranks {
namespace {

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

Address address_of(sockaddr_in of) {
  Address address;
  std::memcpy(&address.bytes, &of, sizeof of);
  address.length = sizeof of;
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &of.sin_addr, text.data(), text.size());
  address.text = fmt::format("{}:{}", text.data(), ntohs(of.sin_port));
  return address;
}

const sockaddr* raw(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.bytes); }

// Returns whether `events` have come by the deadline.
bool await(int socket, short events, Deadline deadline, const Look& look) {
  pollfd entry{socket, events, 0};
  for (;;) {
    const Deadline next = std::min(deadline, Clock::now() + between_looks);
    if (poll_until({&entry, 1}, next)) return true;
    if (errno != ETIMEDOUT || Clock::now() >= deadline) return false;
    look();
  }
}

bool is_connected(int socket, Deadline deadline, const Look& look) {
  if (!await(socket, POLLOUT, deadline, look)) return false;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

// Whether the socket is connected to itself: if nobody listens at an ephemeral port, the system may choose
// that very port for the connection.
bool is_of_itself(int socket) {
  sockaddr_storage here{}, there{};
  socklen_t of_here = sizeof here, of_there = sizeof there;
  getsockname(socket, reinterpret_cast<sockaddr*>(&here), &of_here);
  getpeername(socket, reinterpret_cast<sockaddr*>(&there), &of_there);
  return here.ss_family == AF_INET && of_here == of_there && std::memcmp(&here, &there, of_here) == 0;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Address local_address(uid_t user, std::uint16_t port) {
  Address address;
  address.text = fmt::format("stowage-{}-{}", user, port);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // A zero comes first: the name is abstract.
  std::copy(address.text.begin(), address.text.end(), name.sun_path + 1);
  std::memcpy(&address.bytes, &name, sizeof name);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.text.size());
  return address;
}

Address any_address(std::uint16_t port) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  any.sin_port = htons(port);
  return address_of(any);
}

std::vector<Address> addresses_of(const std::string& host, std::uint16_t port, Names& names) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    names.why = gai_strerror(error);
    names.may_come |= error == EAI_AGAIN;
    return {};
  }
  std::vector<Address> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    sockaddr_in address{};
    std::memcpy(&address, at->ai_addr, sizeof address);
    address.sin_port = htons(port);
    addresses.push_back(address_of(address));
  }
  freeaddrinfo(found);
  return addresses;
}

bool is_own(const Address& address) {
  if (address.bytes.ss_family != AF_INET || address.text.starts_with("127.")) return false;
  Address at_any_port = address;
  reinterpret_cast<sockaddr_in&>(at_any_port.bytes).sin_port = 0;
  return static_cast<bool>(listen_at(at_any_port));
}

std::vector<std::string> own_addresses() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  std::vector<std::string> addresses;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    const bool is_up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0;
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || !is_up) continue;
    sockaddr_in address{};
    std::memcpy(&address, at->ifa_addr, sizeof address);
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
    if (!std::string_view(text.data()).starts_with("127.")) addresses.emplace_back(text.data());
  }
  freeifaddrs(all);
  return addresses;
}

Descriptor listen_at(const Address& address) {
  Descriptor listening(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening) return {};
  // SO_REUSEADDR: old connections of a former listener may still occupy the port.
  const int on = 1;
  if (address.bytes.ss_family == AF_INET)
    setsockopt(listening.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listening.number(), raw(address), address.length) != 0 ||
      listen(listening.number(), SOMAXCONN) != 0)
    return {};
  return listening;
}

std::uint16_t port_of(const Descriptor& listening) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(listening.number(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.sin_port);
}

std::string peer_of(int socket) {
  sockaddr_storage there{};
  socklen_t length = sizeof there;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&there), &length) != 0) return "an unknown address";
  if (there.ss_family == AF_UNIX) return "this machine";
  sockaddr_in address{};
  std::memcpy(&address, &there, sizeof address);
  return address_of(address).text;
}

Descriptor connect_to(const Address& address, Deadline deadline, const Look& look) {
  Descriptor connection(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int number = connection.number();
  if (!connection) return {};
  if (connect(number, raw(address), address.length) != 0 &&
      (errno != EINPROGRESS || !is_connected(number, deadline, look)))
    return {};
  if (is_of_itself(number)) {
    errno = ECONNREFUSED;
    return {};
  }
  return connection;
}

std::optional<uid_t> user_at(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  return credentials.uid;
}

bool poll_until(std::span<pollfd> entries, std::optional<Deadline> deadline) {
  int ready = 0;
  do ready = poll(entries.data(), entries.size(), deadline ? milliseconds_until(*deadline) : -1);
  while (ready < 0 && errno == EINTR);
  if (ready == 0) errno = ETIMEDOUT;
  return ready > 0;
}

bool send_whole(int socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    pollfd entry{socket, POLLOUT, 0};
    if (errno != EAGAIN || !poll_until({&entry, 1}, deadline)) return false;
  }
  return true;
}

std::optional<std::string> receive_whole(int socket, std::size_t bytes, Deadline deadline, const Look& look) {
  std::string received;
  std::array<char, 4096> piece{};
  while (received.size() < bytes) {
    if (!await(socket, POLLIN, deadline, look)) return std::nullopt;
    const ssize_t got =
        recv(socket, piece.data(), std::min(piece.size(), bytes - received.size()), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) return std::nullopt;
    received.append(piece.data(), static_cast<std::size_t>(got));
  }
  return received;
}

bool is_out_of_reach(int socket, std::chrono::milliseconds time) {
  tcp_info info{};
  socklen_t length = sizeof info;
  // A local socket, not TCP.
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const bool has_no_answer = info.tcpi_retransmits > 1 || info.tcpi_probes > 1;
  return has_no_answer && info.tcpi_last_ack_recv >= time.count();
}

void keep_alive(int socket) {
  const int on = 1, seconds = 1, times = 3;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace stowage::ranks
