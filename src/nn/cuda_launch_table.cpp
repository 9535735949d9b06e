#include "src/device/backend_module.h"
#include "stowage/cuda_device.h"
#include "stowage/error.h"

namespace stowage {

LaunchTable cuda_launch_table() {
  const LoadedModule& loaded = cuda_module();
  if (loaded.module == nullptr) throw InvalidInput(loaded.reason);
  LaunchTable table;
  loaded.module->add_kernels(table);
  return table;
}

LaunchTable launch_table_for(const Device& device) {
  return device.info().backend == "cuda" ? cuda_launch_table() : cpu_launch_table();
}

}  // namespace stowage
