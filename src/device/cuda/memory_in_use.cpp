#include "src/device/cuda/memory_in_use.h"

#include <dlfcn.h>

#include <memory>

namespace stowage::cuda {
namespace {

// Declarations from NVML's documentation: not every toolkit brings the header.
struct NvmlMemory {
  unsigned version = sizeof(NvmlMemory) | (2U << 24U);
  unsigned long long total = 0;
  unsigned long long reserved = 0;  // bytes reserved by driver and firmware, no part of `used`
  unsigned long long free = 0;
  unsigned long long used = 0;
};
using NvmlDevice = void*;
using NvmlInit = int (*)();
using NvmlFind = int (*)(const char* pci_bus_id, NvmlDevice* device);
using NvmlMemoryInfo = int (*)(NvmlDevice device, NvmlMemory* memory);

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

std::optional<Bytes> ask(NvmlFind find_device, NvmlMemoryInfo memory_info, const std::string& pci_bus_id) {
  NvmlDevice device = nullptr;
  NvmlMemory memory;
  if (find_device(pci_bus_id.c_str(), &device) != 0 || memory_info(device, &memory) != 0) return std::nullopt;
  return memory.used;
}

}  // namespace

std::optional<Bytes> memory_in_use(const std::string& pci_bus_id) {
  const std::unique_ptr<void, CloseLibrary> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return std::nullopt;
  const auto start = find<NvmlInit>(library.get(), "nvmlInit_v2");
  const auto stop = find<NvmlInit>(library.get(), "nvmlShutdown");
  const auto find_device = find<NvmlFind>(library.get(), "nvmlDeviceGetHandleByPciBusId_v2");
  const auto memory_info = find<NvmlMemoryInfo>(library.get(), "nvmlDeviceGetMemoryInfo_v2");
  if (start == nullptr || stop == nullptr || find_device == nullptr || memory_info == nullptr)
    return std::nullopt;
  if (start() != 0) return std::nullopt;
  const std::optional<Bytes> used = ask(find_device, memory_info, pci_bus_id);
  stop();
  return used;
}

}  // namespace stowage::cuda
