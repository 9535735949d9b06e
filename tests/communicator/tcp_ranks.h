// Ranks that are threads of this process, each with a simulated device of its own, and reach each other over
// TCP.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/communicator/communicator_conformance_fixture.h"
#include "tests/support/reserved_port.h"

namespace stowage {

inline TcpGroup tcp_group(int rank, int size, const ReservedPort& port) {
  return {rank, size, "localhost", port.number()};
}

// `body(rank)`, each in a thread of its own.
template <class Body>
void in_threads(int size, Body&& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

inline void run_over_tcp(int size, const SimulatedOptions& options,
                         const std::function<void(TestRank&)>& body, const CommunicatorOptions& tcp = {}) {
  const ReservedPort port;
  in_threads(size, [&](int rank) {
    const auto device = open_simulated_device(options);
    const auto communicator = open_tcp_communicator(*device, tcp_group(rank, size, port), tcp);
    run_rank(*device, *communicator, body);
  });
}

}  // namespace stowage
