// What the MPI module exports.
#include "src/communicator/communicator_module.h"
#include "src/communicator/mpi/mpi_transport.h"
#include "src/device/backend_module.h"

namespace {

std::unique_ptr<stowage::communication::Transport> open(const stowage::CommunicatorOptions& options) {
  return std::make_unique<stowage::communication::MpiTransport>(options.peer);
}

}  // namespace

extern "C" const stowage::communication::ModuleHead* stowage_mpi_module() {
  static const stowage::communication::MpiModule module{
      {stowage::communication::mpi_module.abi, stowage::backend_module_version()}, open};
  return &module;
}
