// An MPI module of another build: of it, only what is read first is right.
#include "src/communicator/mpi_module.h"

extern "C" const stowage::communication::MpiModule* stowage_mpi_module() {
  static const stowage::communication::MpiModule module{stowage::communication::mpi_module_abi,
                                                        "0.0.1 of another compiler", nullptr};
  return &module;
}
