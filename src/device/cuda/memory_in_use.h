// What other programs hold of a device's memory, as NVML tells it: asked before this process has a
// context there, so that the context's own share can be told apart.
#pragma once

#include <optional>
#include <string>

#include "stowage/bytes.h"

namespace stowage::cuda {

// Nothing where NVML is not installed, does not know the device, or is too old to tell. `pci_bus_id` as
// cudaDeviceGetPCIBusId gives it.
std::optional<Bytes> memory_in_use(const std::string& pci_bus_id);

}  // namespace stowage::cuda
