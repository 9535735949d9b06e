// TCP sockets: what the users of connections between processes share. IPv4. All that waits does so until a
// deadline.
#pragma once

#include <netinet/in.h>
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace stowage::communication {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline in_time(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

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

 private:
  int number_ = -1;
};

// Where none is returned or the answer is false, errno says why.

// Listens at all addresses of this machine; port 0: one that the system chooses.
Descriptor listen_at(std::uint16_t port);
std::uint16_t port_of(const Descriptor& listening);
Descriptor connect_to(const sockaddr_in& address, Deadline deadline);

// Until one of them is ready; no deadline: for ever.
bool poll_until(std::span<pollfd> entries, std::optional<Deadline> deadline);
bool readable_by(int file, Deadline deadline);
bool send_whole(int socket, const void* data, std::size_t bytes);
bool receive_whole(int socket, void* data, std::size_t bytes, Deadline deadline);
// Has the other end closed it, or is it broken? Does not wait, and reads nothing.
bool is_closed(int socket);
// Small messages leave at once. A machine that is gone closes nothing: the system asks for it each second,
// and gives up behind three of them.
void keep_alive(int socket);

// Reception: whoever connects to a listening socket, with the first bytes that they send. Who sends fewer
// holds up nobody.
class Reception {
 public:
  struct Guest {
    Descriptor connection;
    std::vector<char> greeting;
  };
  Reception(Descriptor listening, std::size_t greeting_bytes)
      : listening_(std::move(listening)), greeting_bytes_(greeting_bytes) {}

  // The next whose greeting is whole; none by the deadline.
  std::optional<Guest> next(Deadline deadline);

 private:
  bool wait(Deadline deadline);
  void admit();
  bool read_from(Guest& guest);

  Descriptor listening_;
  const std::size_t greeting_bytes_;
  std::deque<Guest> waiting_;  // greetings of which bytes are missing
};

}  // namespace stowage::communication
