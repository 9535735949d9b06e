#include <fmt/core.h>

#include "src/communicator/simulated_communicator.h"
#include "src/communicator/tcp_rendezvous.h"
#include "src/communicator/tcp_transport.h"
#include "stowage/communicator.h"
#include "stowage/error.h"

namespace stowage {

std::unique_ptr<Communicator> open_tcp_communicator(Device& device, const RankOfGroup& rank,
                                                    const CommunicatorOptions& options) {
  constexpr const char* call = "open_tcp_communicator";
  communication::expect_simulated(device, call);
  if (rank.size < 1 || rank.rank < 0 || rank.rank >= rank.size || !rank.all_gather)
    throw InvalidInput(
        fmt::format("{}: rank {} of {}; give it one of the group's, and how the group gathers bytes", call,
                    rank.rank, rank.size));
  return std::make_unique<communication::SimulatedCommunicator>(
      device, std::make_unique<communication::TcpTransport>(rank, options.peer), call);
}

std::unique_ptr<Communicator> open_tcp_communicator(Device& device, const TcpGroup& group,
                                                    const CommunicatorOptions& options) {
  return open_tcp_communicator(device, communication::rank_at(group), options);
}

}  // namespace stowage
