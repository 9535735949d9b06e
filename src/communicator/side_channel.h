// SideChannel: connections between the processes of a group, beside the library that moves their bytes. Over
// them a rank learns at once that another has failed, has ended, or is no more: when a process dies, however
// it does, the system closes its connections.
//
// Every two ranks have a TCP connection; a thread watches those of this rank. The ranks trust the network
// between them as the library does; a random key keeps out who connects by mistake.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/communicator/collective.h"

namespace stowage::communication {

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
  int number() const { return number_; }

 private:
  int number_ = -1;
};

class SideChannel {
 public:
  // Where a rank listens: plain bytes for the others.
  struct Address {
    std::array<char, 256> machine{};
    std::array<char, 16> host{};  // "10.0.0.7"
    std::uint16_t port = 0;
    std::uint64_t key = 0;
  };
  // Called by the watching thread.
  struct Watcher {
    std::function<void(const RankFailure&)> failed;  // a rank said so
    std::function<void(int rank)> died;
    std::function<void(int rank)> ended;  // as it said
  };

  // Listens. Throws CommunicatorError, in the name of `call`.
  explicit SideChannel(std::string call);
  // Tells the others that this rank has ended.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  const Address& address() const { return address_; }
  // Connects with all other ranks, whose addresses are given by rank, and watches from then on. Throws as
  // above.
  void connect(int rank, std::span<const Address> addresses, Watcher watcher);
  // Tells all others. What it says has left when it returns.
  void tell(const RankFailure& failure);

 private:
  struct Peer {
    int rank = 0;
    Descriptor connection;
    std::string received;  // not yet a whole message
    bool done = false;     // ended, or dead
  };

  [[noreturn]] void fail(const char* what) const;
  Descriptor connected_to(const Address& address, int rank) const;
  void accept_one(std::size_t ranks);
  void watch();
  void read_from(Peer& peer);
  bool take_message(Peer& peer);
  void send_all(const std::string& message);

  const std::string call_;
  Address address_;
  int rank_ = 0;
  Watcher watcher_;
  Descriptor listening_;
  Descriptor stop_;          // readable when the watching shall end
  std::vector<Peer> peers_;  // the watching thread's own, but for their connections
  Mutex sending_;            // one message at a time
  std::thread watching_;     // last: it uses the rest
};

}  // namespace stowage::communication
