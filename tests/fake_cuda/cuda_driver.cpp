// libcuda: what a program asks of the driver beside the runtime; above all, virtual memory management.
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "tests/fake_cuda/capture.h"
#include "tests/fake_cuda/device.h"
#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/state.h"
#include "tests/fake_cuda/virtual_memory.h"

using fake_cuda::driver_call;
using fake_cuda::give;
using fake_cuda::Memory;
using fake_cuda::State;
using fake_cuda::VirtualMemory;

namespace {

// A call that takes time, and that a stream capture may forbid.
template <class Body>
CUresult virtual_call(const char* name, Body body) {
  return driver_call(name, [&] {
    if (!State::get().settings().virtual_memory) return CUDA_ERROR_NOT_SUPPORTED;
    State::get().virtual_nanoseconds += 25'000;
    const int forbidden = fake_cuda::Captures::get().forbids_unsafe_call();
    return forbidden != 0 ? static_cast<CUresult>(forbidden) : body();
  });
}

bool is_card(int number) { return number >= 0 && number < State::get().settings().cards; }

bool is_on_the_card(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && is_card(location.id);
}

bool is_on_the_host(const CUmemLocation& location) {
  const bool node = location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location.id == 0;
  return State::get().settings().host_physical && (node || location.type == CU_MEM_LOCATION_TYPE_HOST);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  return driver_call(__func__, [] { return CUDA_SUCCESS; });
}

CUresult cuDriverGetVersion(int* version) { return give(version, int{CUDA_VERSION}); }

CUresult cuDeviceGetCount(int* count) {
  return driver_call(__func__, [&] { return give(count, State::get().settings().cards); });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return driver_call(__func__,
                     [&] { return is_card(ordinal) ? give(device, ordinal) : CUDA_ERROR_INVALID_DEVICE; });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  return driver_call(__func__, [&] {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", fake_cuda::device_name);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return driver_call(__func__, [&] {
    if (!is_card(device)) return CUDA_ERROR_INVALID_DEVICE;
    const auto known = fake_cuda::device_attribute(static_cast<int>(attribute));
    return known ? give(value, *known) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  return driver_call(__func__, [&] { return give(bytes, State::get().settings().capacity); });
}

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return driver_call(__func__, [&] {
    if (free != nullptr) *free = Memory::get().free_bytes();
    if (total != nullptr) *total = State::get().settings().capacity;
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  return give(name, fake_cuda::error_name(static_cast<int>(error)));
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  return give(text, fake_cuda::error_text(static_cast<int>(error)));
}

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags) {
  return driver_call(__func__, [&] {
    if (!State::get().settings().virtual_memory) return CUDA_ERROR_NOT_SUPPORTED;
    if (prop == nullptr || !(is_on_the_card(prop->location) || is_on_the_host(prop->location)))
      return CUDA_ERROR_INVALID_VALUE;
    return give(bytes, VirtualMemory::granularity);
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return virtual_call(__func__, [&] {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return VirtualMemory::get().reserve(address, bytes, alignment);
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return virtual_call(__func__, [&] { return VirtualMemory::get().unreserve(address, bytes); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  return virtual_call(__func__, [&] {
    const bool on_host = prop != nullptr && is_on_the_host(prop->location);
    const bool valid = prop != nullptr && flags == 0 && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                       (on_host || is_on_the_card(prop->location));
    return valid ? VirtualMemory::get().create(handle, bytes, on_host) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return virtual_call(__func__, [&] { return VirtualMemory::get().release(handle); });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return virtual_call(
      __func__, [&] { return VirtualMemory::get().retain(handle, reinterpret_cast<CUdeviceptr>(address)); });
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return virtual_call(__func__, [&] {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return VirtualMemory::get().map(address, bytes, offset, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  return virtual_call(__func__, [&] { return VirtualMemory::get().unmap(address, bytes); });
}

CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  return virtual_call(__func__, [&] {
    if (access == nullptr || count != 1) return CUDA_ERROR_INVALID_VALUE;
    // The host's memory is the host's to see: that changes nothing here.
    if (is_on_the_host(access->location) && VirtualMemory::get().is_of_host(address, bytes))
      return CUDA_SUCCESS;
    if (!is_on_the_card(access->location)) return CUDA_ERROR_INVALID_VALUE;
    const bool readable = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const bool writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return VirtualMemory::get().set_access(address, bytes, readable, writable);
  });
}
}
