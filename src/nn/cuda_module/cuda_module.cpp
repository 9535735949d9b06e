// Exports of libstowage_cuda.so.
#include "kernels/cuda/attention.h"
#include "src/device/backend_module.h"
#include "src/device/cuda/cuda_device.h"
#include "src/nn/cuda/launch_table.h"

namespace {

// Refuses a wrong choice of attention before any work.
std::unique_ptr<stowage::Device> open(const stowage::CudaOptions& options) {
  stowage::cuda::attention_choice();
  return stowage::cuda::open_device(options);
}

}  // namespace

extern "C" const stowage::BackendModule* stowage_backend_module() {
  static const stowage::BackendModule module{
      stowage::backend_module_abi, stowage::backend_module_version(), stowage::cuda::status,          open,
      stowage::cuda::add_kernels,  stowage::cuda::attention_use,      stowage::detail::set_chunk_loop};
  return &module;
}
