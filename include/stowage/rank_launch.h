// Whether a launcher has started this program as one of several ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace stowage {

struct RankLaunch {
  int rank = 0;
  int size = 1;               // processes; 1: as without a launcher
  int here = 0;               // of them, on this machine; 0: not known
  std::string by;             // "mpirun", "srun", "mpiexec", "torchrun" or "the environment"
  std::string rank_variable;  // of the environment, that has `rank`; "": they may have no parent in common
  // Of processes that MPI does not know: where rank 0 listens.
  std::string host;
  std::uint16_t port = 0;  // 0: they find each other over MPI
};

// By torchrun's environment variables, since other launchers' may be those of a job around it. Else by those
// that Open MPI's mpirun, srun with a PMI and other launchers of MPI set, for several processes. Else by
// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, where all four are there: torchrun sets them, and Kubernetes
// does for a PyTorchJob; a rank of several without an address is refused. Rank 0 listens at MASTER_PORT;
// under torchrun, which listens there itself, at the next one; or at STOWAGE_PORT. Tasks that srun starts
// without a PMI are programs of their own. `variable` returns the value, null where there is none. Throws
// InvalidInput: a value of these that makes no sense.
RankLaunch read_launch(const std::function<const char*(const char* name)>& variable);
// Of this process's environment.
RankLaunch read_launch();

}  // namespace stowage
