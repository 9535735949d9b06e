// Ranks that are processes: this one runs its part of a test, and mpirun starts the others with the same
// tests.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>

#include "stowage/channel.h"
#include "stowage/rank_launch.h"
#include "tests/communicator/communicator_conformance_fixture.h"

namespace stowage {

// As mpirun says; MPI need not have begun.
inline int ranks_of_job() {
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size == nullptr ? 1 : std::atoi(size);
}

// The channel of the job, which a process has one of.
inline std::shared_ptr<Channel> job_channel() {
  static const std::shared_ptr<Channel> channel = open_channel(read_launch());
  return channel;
}

// `open` makes this process's communicator.
template <class Open>
void run_in_job(const SimulatedOptions& options, Open&& open, const std::function<void(TestRank&)>& body) {
  const std::unique_ptr<SimulatedDevice> device = open_simulated_device(options);
  const std::unique_ptr<Communicator> communicator = open(*device);
  run_rank(*device, *communicator, body);
}

}  // namespace stowage
