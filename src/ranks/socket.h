// Sockets for connections between processes: IPv4, and abstract names for processes of one machine. Every
// wait has a deadline.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stowage::ranks {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
// Pause of a waiting thread between its looks at other reasons to end.
inline constexpr std::chrono::milliseconds between_looks{100};

// Owns a file descriptor, and closes it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }  // negative: none
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// An address at which a socket listens or to which it connects.
struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  std::string text;  // "10.0.0.7:29500", or the abstract name
};
// The abstract name at which processes of one user and one machine meet.
Address local_address(uid_t user, std::uint16_t port);
Address any_address(std::uint16_t port);
// The reason that the system knows no address of a name.
struct Names {
  std::string why;
  bool may_come = false;  // true: the name servers do not answer
};
// Returns the IPv4 addresses of a name. If there are none, `names` says why.
std::vector<Address> addresses_of(const std::string& host, std::uint16_t port, Names& names);
// Whether this machine has that address, other than the loopback's.
bool is_own(const Address& address);
// Returns the addresses of this machine's interfaces that are up, except the loopback's.
std::vector<std::string> own_addresses();

// The functions below set errno if they return nothing or false.

Descriptor listen_at(const Address& address);
std::uint16_t port_of(const Descriptor& listening);
std::string peer_of(int socket);  // returns the other end's address, in the form of Address::text
// Called about ten times a second during a wait; an exception ends the wait.
using Look = std::function<void()>;
Descriptor connect_to(
    const Address& address, Deadline deadline, const Look& look = [] {});
// Returns the user of the process at the other end of a local socket.
std::optional<uid_t> user_at(int socket);

bool poll_until(std::span<pollfd> entries, std::optional<Deadline> deadline);
bool send_whole(int socket, std::string_view bytes, Deadline deadline);
// Receives exactly `bytes` bytes.
std::optional<std::string> receive_whole(
    int socket, std::size_t bytes, Deadline deadline, const Look& look = [] {});
// Makes small messages leave at once, and detects dead machines, which close no connection: while nothing is
// under way, the system probes the other machine each second, and gives up after three probes.
void keep_alive(int socket);
// Whether the system keeps resending bytes while the other machine has been silent for `time`.
bool is_out_of_reach(int socket, std::chrono::milliseconds time);

}  // namespace stowage::ranks
