// TcpMesh: a TCP connection between every two ranks of a group. Each rank listens at a port that the system
// chooses, the ranks learn each other's addresses by other means, and each connects to those of lower
// numbers.
//
// The ranks trust the network between them; a random key keeps out who connects by mistake.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/communicator/tcp_socket.h"

namespace stowage::communication {

class TcpMesh {
 public:
  // Where a rank listens: plain bytes for the others.
  struct Address {
    std::array<char, 256> machine{};
    std::array<char, 16> host{};  // "10.0.0.7"
    std::uint16_t port = 0;
    std::uint64_t key = 0;
  };

  // Listens. Throws CommunicatorError, in the name of `call`.
  explicit TcpMesh(std::string call);

  const Address& address() const { return address_; }
  // Connects with all other ranks, whose addresses are given by rank, and listens no more. The connections,
  // by rank, none at its own. Throws as above, and what `look` throws, which is asked a few times a second of
  // each rank that has not come yet.
  std::vector<Descriptor> connect(int rank, std::span<const Address> addresses,
                                  const std::function<void(int missing)>& look = {});

 private:
  void accept_higher(int rank, std::vector<Descriptor>& connections,
                     const std::function<void(int missing)>& look);
  Descriptor connected_to(const Address& address, int rank, int other) const;
  [[noreturn]] void fail(int rank, const std::string& what) const;

  const std::string call_;
  Descriptor listening_;
  Address address_;
};

}  // namespace stowage::communication
