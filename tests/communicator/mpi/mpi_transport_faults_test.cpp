// Each call of MPI failed once, on one rank: all ranks learn which. The functions below take the place of
// MPI's (its profiling interface). Started by mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>

#include "src/communicator/mpi/mpi_transport.h"
#include "src/communicator/simulated_communicator.h"
#include "tests/communicator/mpi/mpi_ranks.h"

namespace {

std::string failing;  // the call that fails next; once

bool fails(const char* call) {
  if (failing != call) return false;
  failing.clear();
  return true;
}

}  // namespace

extern "C" {
int MPI_Iallgather(const void* send, int sent, MPI_Datatype type, void* receive, int received,
                   MPI_Datatype of, MPI_Comm communicator, MPI_Request* request) {
  if (fails("MPI_Iallgather")) return MPI_ERR_OTHER;
  return PMPI_Iallgather(send, sent, type, receive, received, of, communicator, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int source, int tag, MPI_Comm communicator,
              MPI_Request* request) {
  if (fails("MPI_Irecv")) return MPI_ERR_OTHER;
  return PMPI_Irecv(data, count, type, source, tag, communicator, request);
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int target, int tag, MPI_Comm communicator,
              MPI_Request* request) {
  if (fails("MPI_Isend")) return MPI_ERR_OTHER;
  return PMPI_Isend(data, count, type, target, tag, communicator, request);
}
int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  if (fails("MPI_Testall")) return MPI_ERR_OTHER;
  return PMPI_Testall(count, requests, done, statuses);
}
int MPI_Comm_idup(MPI_Comm communicator, MPI_Comm* copy, MPI_Request* request) {
  if (fails("MPI_Comm_idup")) return MPI_ERR_OTHER;
  return PMPI_Comm_idup(communicator, copy, request);
}
int MPI_Comm_set_errhandler(MPI_Comm communicator, MPI_Errhandler handler) {
  return fails("MPI_Comm_set_errhandler") ? MPI_ERR_OTHER : PMPI_Comm_set_errhandler(communicator, handler);
}
int MPI_Comm_rank(MPI_Comm communicator, int* rank) {
  return fails("MPI_Comm_rank") ? MPI_ERR_OTHER : PMPI_Comm_rank(communicator, rank);
}
int MPI_Comm_size(MPI_Comm communicator, int* size) {
  return fails("MPI_Comm_size") ? MPI_ERR_OTHER : PMPI_Comm_size(communicator, size);
}
}

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Communicator> open(Device& device) {
  const auto channel = ranks_of_job() > 1 ? job_channel() : local_channels(1).front();
  return std::make_unique<communication::SimulatedCommunicator>(
      device, std::make_unique<communication::MpiTransport>(channel, Link::unthrottled()), "open");
}

TEST(MpiTransportFaults, ACallThatFailsOnOneRankIsNamedOnAll) {
  for (const char* const call : {"MPI_Iallgather", "MPI_Irecv", "MPI_Isend", "MPI_Testall"})
    run_in_job({.capacity = 1_MiB}, open, [&](TestRank& r) {
      const DeviceMemory from(r.device, MemoryKind::pinned, 1024), to(r.device, MemoryKind::pinned, 1024);
      const auto error = r.failure_behind([&] {
        if (r.rank == r.size - 1) failing = call;
        r.communicator.exchange(r.lane.id(), from.data(), to.data(), 16);
      });
      ASSERT_TRUE(error) << call;
      EXPECT_EQ(failing, "");
      EXPECT_EQ(error->failed_rank(), r.size - 1);
      EXPECT_THAT(error->what(), AllOf(HasSubstr(call), HasSubstr("MPI_ERR_OTHER")));
    });
}

// Alone: the others would wait within MPI.
TEST(MpiTransportFaults, ACallThatFailsAtOpeningIsAnError) {
  if (ranks_of_job() > 1) GTEST_SKIP() << "for one rank";
  const auto device = open_simulated_device({.capacity = 1_MiB});
  for (const char* const call : {"MPI_Comm_idup", "MPI_Comm_set_errhandler", "MPI_Testall"}) {
    communication::MpiSession::get();
    failing = call;
    try {
      open(*device);
      ADD_FAILURE() << call << " failed unnoticed";
    } catch (const CommunicatorError& error) {
      EXPECT_EQ(error.call(), "open_mpi_communicator");
      EXPECT_THAT(error.what(), HasSubstr(call));
    }
    EXPECT_EQ(failing, "");
  }
  for (const char* const call : {"MPI_Comm_rank", "MPI_Comm_size"}) {
    failing = call;
    EXPECT_THROW(open(*device), InvalidInput) << call;
  }
  run_in_job({.capacity = 1_MiB}, open, [](TestRank& r) { r.communicator.barrier(); });
}

}  // namespace
}  // namespace stowage
