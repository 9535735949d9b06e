// A rank dies without a word, and the launcher lets the others live: they end with an error that names it.
// Started by mpirun --enable-recovery, with more than one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/communicator/mpi/mpi_ranks.h"

namespace stowage {
namespace {

std::unique_ptr<Communicator> open(Device& device) { return open_mpi_communicator(device, job_channel()); }

// The last test of the process: MPI is lost.
TEST(MpiTransportDeath, OneThatDiesIsNamedByTheOthers) {
  run_in_job({.capacity = 1_MiB}, open, [](TestRank& r) {
    const DeviceMemory pinned(r.device, MemoryKind::pinned, 1024);
    const int dying = r.size - 1;
    const auto error = r.failure_behind([&] {
      r.communicator.all_gather(r.lane.id(), pinned.data(), 16);
      r.communicator.barrier();
      if (r.rank == dying) std::raise(SIGKILL);
      if (r.rank == 0) return r.communicator.barrier();
      r.communicator.all_gather(r.lane.id(), pinned.data(), 16);
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->failed_rank(), dying);
    EXPECT_THAT(error->what(), testing::HasSubstr("ended without a word"));
    r.expect_final(pinned.data());
  });
  const auto device = open_simulated_device({.capacity = 1_MiB});
  EXPECT_THROW(open(*device), InvalidInput);
}

}  // namespace
}  // namespace stowage
