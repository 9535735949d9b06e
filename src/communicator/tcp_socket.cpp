#include "src/communicator/tcp_socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace stowage::communication {
namespace {

// Who has sent no whole greeting: when more come, or there are no more files, the first of them is sent away.
constexpr std::size_t most_waiting = 256;

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

void set_blocking(int socket, bool blocking) {
  const int flags = fcntl(socket, F_GETFL);
  fcntl(socket, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

bool is_connected(int socket, Deadline deadline) {
  pollfd entry{socket, POLLOUT, 0};
  if (!poll_until({&entry, 1}, deadline)) return false;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

// Where nobody listens at a port from which the system takes those of connections, it may take that very one:
// the socket then talks to itself.
bool is_of_itself(int socket) {
  sockaddr_in here{}, there{};
  socklen_t length = sizeof here;
  getsockname(socket, reinterpret_cast<sockaddr*>(&here), &length);
  getpeername(socket, reinterpret_cast<sockaddr*>(&there), &length);
  return here.sin_port == there.sin_port && here.sin_addr.s_addr == there.sin_addr.s_addr;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Descriptor listen_at(std::uint16_t port) {
  Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int number = listening.number(), on = 1;
  if (number < 0) return {};
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  any.sin_port = htons(port);
  // A port at which nobody listens any more may still have connections that the system is about to forget.
  if (port != 0) setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(number, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
      listen(number, SOMAXCONN) != 0)
    return {};
  return listening;
}

std::uint16_t port_of(const Descriptor& listening) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(listening.number(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.sin_port);
}

Descriptor connect_to(const sockaddr_in& address, Deadline deadline) {
  Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int number = connection.number();
  if (number < 0) return {};
  if (connect(number, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      (errno != EINPROGRESS || !is_connected(number, deadline)))
    return {};
  if (is_of_itself(number)) {
    errno = ECONNREFUSED;
    return {};
  }
  set_blocking(number, true);
  return connection;
}

bool poll_until(std::span<pollfd> entries, std::optional<Deadline> deadline) {
  int ready = 0;
  do ready = poll(entries.data(), entries.size(), deadline ? milliseconds_until(*deadline) : -1);
  while (ready < 0 && errno == EINTR);
  if (ready == 0) errno = ETIMEDOUT;
  return ready > 0;
}

bool readable_by(int file, Deadline deadline) {
  pollfd entry{file, POLLIN, 0};
  return poll_until({&entry, 1}, deadline);
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

bool receive_whole(int socket, void* data, std::size_t bytes, Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!readable_by(socket, deadline)) return false;
    const ssize_t got = recv(socket, at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool is_closed(int socket) {
  char next = 0;
  const ssize_t got = recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void keep_alive(int socket) {
  const int on = 1, seconds = 1, times = 3;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::optional<Reception::Guest> Reception::next(Deadline deadline) {
  do {
    for (auto guest = waiting_.begin(); guest != waiting_.end();) {
      if (!read_from(*guest)) {
        guest = waiting_.erase(guest);
      } else if (guest->greeting.size() == greeting_bytes_) {
        Guest whole = std::move(*guest);
        waiting_.erase(guest);
        return whole;
      } else {
        ++guest;
      }
    }
  } while (std::chrono::steady_clock::now() < deadline && wait(deadline));
  return std::nullopt;
}

bool Reception::wait(Deadline deadline) {
  std::vector<pollfd> entries{{listening_.number(), POLLIN, 0}};
  for (const Guest& guest : waiting_) entries.push_back({guest.connection.number(), POLLIN, 0});
  if (!poll_until(entries, deadline)) return false;
  if (entries.front().revents != 0) admit();
  return true;
}

void Reception::admit() {
  Descriptor connection(accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool is_full = connection.number() < 0 && (errno == EMFILE || errno == ENFILE);
  if (connection.number() >= 0) waiting_.push_back({std::move(connection), {}});
  if (waiting_.size() > most_waiting || (is_full && !waiting_.empty())) waiting_.pop_front();
}

// False: it sends no more.
bool Reception::read_from(Guest& guest) {
  std::array<char, 1024> bytes{};
  const std::size_t missing = greeting_bytes_ - guest.greeting.size();
  const ssize_t got =
      recv(guest.connection.number(), bytes.data(), std::min(missing, bytes.size()), MSG_DONTWAIT);
  if (got > 0) guest.greeting.insert(guest.greeting.end(), bytes.data(), bytes.data() + got);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace stowage::communication
