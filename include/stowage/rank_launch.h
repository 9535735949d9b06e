// Detects whether a launcher has started this program as one of several ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace stowage {

struct RankLaunch {
  int rank = 0;
  int size = 1;               // number of processes; 1: as without a launcher
  int here = 0;               // processes on this machine; 0: not known
  std::string by;             // "mpirun", "srun", "mpiexec", "torchrun" or "the environment"
  std::string rank_variable;  // environment variable that holds `rank`; "": ranks may have no common parent
  // Host at which rank 0 listens, for processes that MPI does not know.
  std::string host;
  std::uint16_t port = 0;  // 0: processes find each other over MPI
};

// Reads environment variables through `variable`, which returns the value or null, in this order:
// - torchrun's, first because other launchers' may belong to a job around it;
// - those that Open MPI's mpirun, srun with a PMI and other launchers of MPI set, for several processes;
// - RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, if all four are there, as Kubernetes sets them for a
//   PyTorchJob. A rank of several without an address is refused.
// Rank 0 listens at STOWAGE_PORT if set, else at MASTER_PORT; under torchrun, which listens there itself, at
// the next port. Tasks that srun starts without a PMI are programs of their own. Throws InvalidInput if a
// value makes no sense.
RankLaunch read_launch(const std::function<const char*(const char* name)>& variable);
// Same, of this process's environment.
RankLaunch read_launch();

}  // namespace stowage
