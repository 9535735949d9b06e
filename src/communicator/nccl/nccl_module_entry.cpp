// Exports of the NCCL module.
#include "src/communicator/communicator_module.h"
#include "src/communicator/nccl/nccl_communicator.h"
#include "src/device/backend_module.h"

namespace {

std::unique_ptr<stowage::Communicator> open(stowage::Device& device,
                                            std::shared_ptr<stowage::Channel> channel) {
  return std::make_unique<stowage::communication::NcclCommunicator>(device, std::move(channel));
}

}  // namespace

extern "C" const stowage::communication::ModuleHead* stowage_nccl_module() {
  static const stowage::communication::NcclModule module{
      {stowage::communication::nccl_module.abi, stowage::backend_module_version()}, open};
  return &module;
}
