#include "src/device/cuda/virtual_memory.h"

#include <algorithm>

namespace stowage::cuda {
namespace {

CUdeviceptr to_device(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

bool VirtualMemory::is_supported(const DriverApi& api, int ordinal) {
  if (!api.has_virtual_memory()) return false;
  int supported = 0;
  const CUresult asked =
      api.device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal);
  check(asked, "cuDeviceGetAttribute", {"open", {}, ordinal});
  return supported != 0;
}

VirtualMemory::VirtualMemory(const DriverApi& api, int ordinal) : api_(api), ordinal_(ordinal) {
  const CUmemAllocationProp kind = properties();
  std::size_t granularity = 0;
  check(api_.mem_get_allocation_granularity(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity", {"open", {}, ordinal_});
  granularity_ = granularity;
}

VirtualMemory::~VirtualMemory() {
  for (const Handle handle : unreleased_) api_.mem_release(handle);
}

CUmemAllocationProp VirtualMemory::properties() const {
  CUmemAllocationProp result{};
  result.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  result.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  result.location.id = ordinal_;
  return result;
}

void* VirtualMemory::reserve(Bytes bytes, const Doing& doing) {
  CUdeviceptr address = 0;
  check(api_.mem_address_reserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve", doing);
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): to the driver a number
}

void VirtualMemory::free(void* address, Bytes bytes, const Doing& doing) {
  check(api_.mem_address_free(to_device(address), bytes), "cuMemAddressFree", doing);
}

void VirtualMemory::map(void* address, Bytes bytes, Bytes piece, const Doing& doing) {
  const CUdeviceptr begin = to_device(address);
  Bytes done = 0;
  try {
    for (; done < bytes; done += std::min(piece, bytes - done))
      map_piece(begin + done, std::min(piece, bytes - done), doing);
    allow_access(begin, bytes, doing);
  } catch (...) {
    if (done > 0) api_.mem_unmap(begin, done);
    throw;
  }
}

// The mapping keeps the memory, so the handle is released at once.
void VirtualMemory::map_piece(CUdeviceptr address, Bytes bytes, const Doing& doing) {
  const CUmemAllocationProp kind = properties();
  Handle handle{};
  check(api_.mem_create(&handle, bytes, &kind, 0), "cuMemCreate", doing);
  const CUresult mapped = api_.mem_map(address, bytes, 0, handle, 0);
  const CUresult released = api_.mem_release(handle);
  if (released != CUDA_SUCCESS) {
    unreleased_.push_back(handle);
    if (mapped == CUDA_SUCCESS) api_.mem_unmap(address, bytes);
  }
  check(mapped, "cuMemMap", doing);
  check(released, "cuMemRelease", doing);
}

void VirtualMemory::allow_access(CUdeviceptr address, Bytes bytes, const Doing& doing) {
  CUmemAccessDesc access{};
  access.location = properties().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(api_.mem_set_access(address, bytes, &access, 1), "cuMemSetAccess", doing);
}

void VirtualMemory::unmap(void* address, Bytes bytes, const Doing& doing) {
  check(api_.mem_unmap(to_device(address), bytes), "cuMemUnmap", doing);
}

}  // namespace stowage::cuda
