// What libstowage_cuda.so exports.
#include "src/device/backend_module.h"
#include "src/device/cuda/open.h"
#include "src/nn/cuda/launch_table.h"

extern "C" const stowage::BackendModule* stowage_backend_module() {
  static const stowage::BackendModule module{stowage::backend_module_abi, stowage::backend_module_version(),
                                             stowage::cuda::status, stowage::cuda::open_device,
                                             stowage::cuda::add_kernels};
  return &module;
}
