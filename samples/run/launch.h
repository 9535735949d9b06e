// Whether a launcher has started this program as one of several ranks.
#pragma once

#include <functional>
#include <string>

namespace stowage::samples {

struct Launch {
  int rank = 0;
  int size = 1;               // processes; 1: as without a launcher
  int here = 0;               // of them, on this machine; 0: not known
  std::string by;             // "mpirun", "srun", "mpiexec" or "torchrun"
  std::string rank_variable;  // of the environment, that has `rank`
};

// By the environment variables that Open MPI's mpirun, srun with a PMI, other launchers of MPI, and torchrun
// set, whose processes MPI does not know: Job refuses them. Tasks that srun starts without a PMI are programs
// of their own. `variable` returns the value, null where there is
// none.
Launch read_launch(const std::function<const char*(const char* name)>& variable);
// Of this process's environment.
Launch read_launch();

}  // namespace stowage::samples
