// A backend whose calls throw, to see what crosses the boundary of a loaded module.
#include "src/device/backend_module.h"
#include "stowage/error.h"

namespace {

stowage::CudaStatus status() { return {true, "a module that throws"}; }

std::unique_ptr<stowage::Device> open(const stowage::CudaOptions& options) {
  if (options.ordinal == 0) throw stowage::OutOfMemory("open: none left; release some", options.scratch, 7);
  if (options.ordinal == 1) throw stowage::DeviceError("open: broken; repair it", "open", "work");
  throw stowage::InvalidInput("open: no such card; name another");
}

void add_kernels(stowage::LaunchTable& /*table*/) {}

stowage::AttentionUse attention_use() { return {1, 2, 3, {"a shape"}}; }

}  // namespace

extern "C" const stowage::BackendModule* stowage_backend_module() {
  static const stowage::BackendModule module{stowage::backend_module_abi,
                                             stowage::backend_module_version(),
                                             status,
                                             open,
                                             add_kernels,
                                             attention_use,
                                             [](stowage::detail::ChunkLoop) {}};
  return &module;
}
