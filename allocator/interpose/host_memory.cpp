#include "allocator/interpose/host_memory.h"

#include "allocator/interpose/driver.h"
#include "allocator/interpose/scopes.h"

namespace stowage::interpose {
namespace {

CUmemLocation host_location(HostSource source, CUdevice device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST;
  if (source == HostSource::any_node) return location;
  int node = -1;
  call_real<decltype(cuDeviceGetAttribute)>(Entry::device_get_attribute, &node,
                                            CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
  location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = node < 0 ? 0 : node;  // a machine without nodes takes node 0
  return location;
}

CUresult grant(const HostMemory& memory, const CUmemLocation& location) {
  CUmemAccessDesc access{};
  access.location = location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return call_real<decltype(cuMemSetAccess)>(Entry::mem_set_access, memory.address, memory.bytes, &access,
                                             std::size_t{1});
}

// The device must have access to the memory. The host should have it, since the driver may copy by the CPU,
// and so should other devices, which could access the device's memory once the program allows it.
CUresult grant_all(const HostMemory& memory, const CUmemLocation& host, CUdevice device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  if (const CUresult result = grant(memory, location); result != CUDA_SUCCESS) return result;
  grant(memory, host);
  int devices = 0;
  call_real<decltype(cuDeviceGetCount)>(Entry::device_get_count, &devices);
  for (location.id = 0; location.id < devices; ++location.id) {
    if (location.id != device) grant(memory, location);
  }
  return CUDA_SUCCESS;
}

CUresult take_mapped(const CUmemLocation& host, CUdevice device, HostMemory& memory) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = host;
  std::size_t granularity = 0;
  CUresult result = call_real<decltype(cuMemGetAllocationGranularity)>(
      Entry::mem_get_allocation_granularity, &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return result;
  if (granularity == 0 || host_granule % granularity != 0) return CUDA_ERROR_NOT_SUPPORTED;
  result = call_real<decltype(cuMemCreate)>(Entry::mem_create, &memory.handle, memory.bytes, &prop, 0ULL);
  memory.created = result == CUDA_SUCCESS;
  if (!memory.created) return result;
  result = call_real<decltype(cuMemAddressReserve)>(Entry::mem_address_reserve, &memory.address, memory.bytes,
                                                    host_granule, CUdeviceptr{0}, 0ULL);
  memory.reserved = result == CUDA_SUCCESS;
  if (!memory.reserved) return result;
  result = call_real<decltype(cuMemMap)>(Entry::mem_map, memory.address, memory.bytes, std::size_t{0},
                                         memory.handle, 0ULL);
  memory.mapped = result == CUDA_SUCCESS;
  return memory.mapped ? grant_all(memory, host, device) : result;
}

CUresult take_pinned(HostMemory& memory) {
  CUresult result = call_real<decltype(cuMemHostAlloc)>(
      Entry::mem_host_alloc, &memory.pinned, memory.bytes,
      static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  if (result != CUDA_SUCCESS) {
    memory.pinned = nullptr;
    return result;
  }
  memory.context = current_context();
  return call_real<decltype(cuMemHostGetDevicePointer_v2)>(Entry::mem_host_get_device_pointer,
                                                           &memory.address, memory.pinned, 0U);
}

}  // namespace

CUresult take_host_memory(HostSource source, CUdevice device, std::size_t bytes, HostMemory& memory) {
  memory = {};
  memory.bytes = bytes;
  if (source == HostSource::pinned) return take_pinned(memory);
  return take_mapped(host_location(source, device), device, memory);
}

bool give_back(HostMemory& memory) {
  if (memory.pinned != nullptr) {
    const InContext in(memory.context);
    if (call_real<decltype(cuMemFreeHost)>(Entry::mem_free_host, memory.pinned) != CUDA_SUCCESS) return false;
    memory.pinned = nullptr;
  }
  if (memory.mapped) {
    memory.mapped =
        call_real<decltype(cuMemUnmap)>(Entry::mem_unmap, memory.address, memory.bytes) != CUDA_SUCCESS;
    if (memory.mapped) return false;
  }
  if (memory.created) {
    memory.created = call_real<decltype(cuMemRelease)>(Entry::mem_release, memory.handle) != CUDA_SUCCESS;
    if (memory.created) return false;
  }
  if (memory.reserved) {
    memory.reserved = call_real<decltype(cuMemAddressFree)>(Entry::mem_address_free, memory.address,
                                                            memory.bytes) != CUDA_SUCCESS;
    if (memory.reserved) return false;
  }
  return true;
}

}  // namespace stowage::interpose
