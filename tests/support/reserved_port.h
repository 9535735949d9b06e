// A TCP port that the system chooses. As long as this object lives, the system gives the port only to a
// program that asks for its number with SO_REUSEADDR, as rank 0 of a job does.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <stdexcept>

#include "src/ranks/socket.h"

namespace stowage {

class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in any{};
    any.sin_family = AF_INET;
    if (::setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(socket_.number(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
      throw std::runtime_error("no port");
  }
  std::uint16_t number() const { return ranks::port_of(socket_); }

 private:
  ranks::Descriptor socket_;
};

}  // namespace stowage
