#include "src/communicator/tcp_mesh.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "stowage/error.h"

namespace stowage::communication {
namespace {

constexpr const char* loopback = "127.0.0.1";
constexpr std::chrono::seconds mesh_patience{30};  // ranks come here together, so this is ample
constexpr std::chrono::milliseconds between_looks{100};

struct Greeting {
  std::uint64_t key = 0;
  std::int32_t rank = 0;
  std::int32_t unused = 0;
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

// It comes from another process: it need not end.
template <std::size_t size>
std::string text_in(const std::array<char, size>& from) {
  return {from.begin(), std::find(from.begin(), from.end(), '\0')};
}

}  // namespace

TcpMesh::TcpMesh(std::string call) : call_(std::move(call)), listening_(listen_at(0)) {
  if (listening_.number() < 0) fail(0, "nothing can listen here");
  gethostname(address_.machine.data(), address_.machine.size() - 1);
  put(address_.host, own_host());
  address_.port = port_of(listening_);
  std::random_device random;
  address_.key = (std::uint64_t{random()} << 32) | random();
}

std::vector<Descriptor> TcpMesh::connect(int rank, std::span<const Address> addresses,
                                         const std::function<void(int missing)>& look) {
  std::vector<Descriptor> connections(addresses.size());
  for (int lower = 0; lower < rank; ++lower)
    connections[static_cast<std::size_t>(lower)] =
        connected_to(addresses[static_cast<std::size_t>(lower)], rank, lower);
  accept_higher(rank, connections, look);
  for (const Descriptor& connection : connections)
    if (connection.number() >= 0) keep_alive(connection.number());
  return connections;
}

void TcpMesh::accept_higher(int rank, std::vector<Descriptor>& connections,
                            const std::function<void(int missing)>& look) {
  const int size = static_cast<int>(connections.size());
  const auto of = [&](int other) -> Descriptor& { return connections[static_cast<std::size_t>(other)]; };
  Reception reception(std::move(listening_), sizeof(Greeting));
  const Deadline deadline = in_time(mesh_patience);
  for (int missing = size - 1 - rank; missing > 0;) {
    const auto now = std::chrono::steady_clock::now();
    auto guest = reception.next(std::min(deadline, now + between_looks));
    if (!guest) {
      for (int other = rank + 1; other < size; ++other) {
        if (of(other).number() >= 0) continue;
        if (now >= deadline) fail(other, fmt::format("rank {} has not come", other));
        if (look) look(other);
      }
      continue;
    }
    Greeting greeting;
    std::memcpy(&greeting, guest->greeting.data(), sizeof greeting);
    const bool is_missing = greeting.rank > rank && greeting.rank < size && of(greeting.rank).number() < 0;
    if (greeting.key != address_.key || !is_missing) continue;  // a stranger
    of(greeting.rank) = std::move(guest->connection);
    --missing;
  }
}

Descriptor TcpMesh::connected_to(const Address& address, int rank, int other) const {
  // Containers and copied machines may have one name.
  const bool is_here = text_in(address.machine) == text_in(address_.machine) &&
                       text_in(address.host) == text_in(address_.host);
  const std::string host = is_here ? loopback : text_in(address.host);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  if (inet_pton(AF_INET, host.c_str(), &to.sin_addr) != 1)
    fail(other, fmt::format("rank {} sends no address", other));
  Descriptor connection = connect_to(to, in_time(mesh_patience));
  const Greeting greeting{address.key, rank, 0};
  if (connection.number() < 0 || !send_whole(connection.number(), &greeting, sizeof greeting))
    fail(other, fmt::format("rank {} at {}:{} does not answer", other, host, address.port));
  return connection;
}

void TcpMesh::fail(int rank, const std::string& what) const {
  throw CommunicatorError(
      fmt::format("{}: {} ({}): let the ranks' machines reach each other by TCP, or start all ranks on one",
                  call_, what, std::strerror(errno)),
      call_, rank);
}

}  // namespace stowage::communication
