// An MPI module of another build: of it, only what is read first is right.
#include "src/communicator/communicator_module.h"

extern "C" const stowage::communication::ModuleHead* stowage_mpi_module() {
  static const stowage::communication::MpiModule module{
      {stowage::communication::mpi_module.abi, "0.0.1 of another compiler"}, nullptr};
  return &module;
}
