// Sockets of this machine and of others: what the users of connections between processes share. IPv4, and
// names of the abstract kind for processes of one machine. Everything that waits does so until a deadline.
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
inline constexpr std::chrono::milliseconds between_looks{100};  // of who waits, at what else may end that

// An open file, closed when its owner dies.
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

// Where a socket listens or connects.
struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
  std::string text;  // "10.0.0.7:29500", or the abstract name
};
// The name by which processes of one user and one machine meet.
Address local_address(uid_t user, std::uint16_t port);
Address any_address(std::uint16_t port);
// Why the system knows no address of a name.
struct Names {
  std::string why;
  bool may_come = false;  // those that it asks do not answer
};
// The IPv4 addresses of a name. Where it has none `names` says why.
std::vector<Address> addresses_of(const std::string& host, std::uint16_t port, Names& names);
// Whether this machine has that address, and it is not the loopback's.
bool is_own(const Address& address);
// The addresses of this machine, but for the loopback's, of interfaces that are up.
std::vector<std::string> own_addresses();

// Where none is returned or the answer is false, errno says why.

Descriptor listen_at(const Address& address);
std::uint16_t port_of(const Descriptor& listening);
std::string peer_of(int socket);  // as Address::text
// `look` is asked some ten times a second; what it throws ends the waiting.
using Look = std::function<void()>;
Descriptor connect_to(
    const Address& address, Deadline deadline, const Look& look = [] {});
// The user whose process is at the other end, of a socket of this machine.
std::optional<uid_t> user_at(int socket);

bool poll_until(std::span<pollfd> entries, std::optional<Deadline> deadline);
bool send_whole(int socket, std::string_view bytes, Deadline deadline);
// So many bytes.
std::optional<std::string> receive_whole(
    int socket, std::size_t bytes, Deadline deadline, const Look& look = [] {});
// Small messages leave at once. A machine that is gone closes nothing: where nothing is under way to it the
// system asks for it each second, and gives up behind three of them.
void keep_alive(int socket);
// Whether what was sent is sent again and again, and the other machine has said nothing for so long.
bool is_out_of_reach(int socket, std::chrono::milliseconds time);

}  // namespace stowage::ranks
