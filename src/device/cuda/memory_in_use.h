// Memory in use on a card, from NVML.
#pragma once

#include <optional>
#include <string>

#include "stowage/bytes.h"

namespace stowage::cuda {

// Bytes that other programs hold of a device's memory, as NVML says. Ask before this process has a context
// there, which counts too. Returns nullopt where NVML is not installed, does not know the device, or is too
// old to tell. `pci_bus_id` as cudaDeviceGetPCIBusId gives it.
std::optional<Bytes> memory_in_use(const std::string& pci_bus_id);

}  // namespace stowage::cuda
