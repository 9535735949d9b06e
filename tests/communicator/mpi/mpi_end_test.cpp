// A rank dies where MPI waits for all as it ends, or where the ranks have not come together yet, and the
// launcher lets the others live: none of them waits for it. The functions below take the place of MPI's (its
// profiling interface); this MPI never ends, as Open MPI's does not where a rank dies a few milliseconds
// before the others come to its end. Started by mpirun --enable-recovery, each test by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "stowage/channel.h"
#include "stowage/error.h"
#include "stowage/rank_launch.h"

namespace {

enum class Death { at_the_end, before_the_meeting };
Death death = Death::at_the_end;
bool shares = false;

bool is_last() {
  int rank = 0, size = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  return rank == size - 1;
}

}  // namespace

extern "C" {
int MPI_Finalize() {
  if (is_last()) std::raise(SIGKILL);
  for (;;) pause();
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm communicator,
               MPI_Request* request) {
  shares = true;
  return PMPI_Ibcast(data, count, type, root, communicator, request);
}
int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  const int answer = PMPI_Testall(count, requests, done, statuses);
  if (shares && *done != 0 && death == Death::before_the_meeting && is_last()) std::raise(SIGKILL);
  return answer;
}
}

namespace stowage {
namespace {

// Goes on forever unless the death is seen.
TEST(MpiEnd, OneThatDiesInItIsNamedByTheOthers) {
  const auto stuck = [](const std::string& why) {
    const bool named = why.find("rank 3 failed: its process ended without a word") != std::string::npos;
    std::fprintf(stderr, "%s: %s\n", named ? "named" : "FAILED", why.c_str());
    ::_exit(named ? 0 : 1);
  };
  std::shared_ptr<Channel> channel = open_channel(read_launch(), {.stuck = stuck});
  channel->barrier();
  channel.reset();
  FAIL() << "MPI has ended";
}

// Behind it the process ends, and does not end MPI.
TEST(MpiEnd, IsNotWaitedForWhereOneHasDiedBeforeAllHaveCome) {
  death = Death::before_the_meeting;
  EXPECT_THROW(open_channel(read_launch()), CommunicatorError);
}

}  // namespace
}  // namespace stowage
