// libcuda: what a program asks of the driver beside the runtime; above all, virtual memory management.
#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "tests/fake_cuda/device.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/state.h"
#include "tests/fake_cuda/virtual_memory.h"

using fake_cuda::Memory;
using fake_cuda::State;
using fake_cuda::VirtualMemory;

namespace {

CUresult standing_error() {
  switch (State::get().settings().driver) {
    case fake_cuda_no_driver:
      return CUDA_ERROR_STUB_LIBRARY;
    case fake_cuda_no_device:
      return CUDA_ERROR_NO_DEVICE;
    case fake_cuda_driver_present:
      break;
  }
  return static_cast<CUresult>(State::get().lost());
}

template <class Body>
CUresult call(const char* name, Body body) {
  if (fake_cuda::in_host_function) {
    ++State::get().calls_from_host_functions;
    return CUDA_ERROR_NOT_PERMITTED;
  }
  const int planned = State::get().begin_call(name, CUDA_ERROR_UNKNOWN);
  if (planned != 0) return static_cast<CUresult>(planned);
  const CUresult standing = standing_error();
  return standing != CUDA_SUCCESS ? standing : body();
}

template <class Body>
CUresult virtual_call(const char* name, Body body) {
  return call(name,
              [&] { return State::get().settings().virtual_memory ? body() : CUDA_ERROR_NOT_SUPPORTED; });
}

bool is_on_the_card(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == 0;
}

template <class Value>
CUresult give(Value* to, Value value) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *to = value;
  return CUDA_SUCCESS;
}

char the_context;  // stands for the primary context; never looked into
CUcontext context() { return reinterpret_cast<CUcontext>(&the_context); }

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  return call(__func__, [] { return CUDA_SUCCESS; });
}

CUresult cuDriverGetVersion(int* version) { return give(version, int{CUDA_VERSION}); }

CUresult cuDeviceGetCount(int* count) {
  return call(__func__, [&] { return give(count, 1); });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call(__func__, [&] { return ordinal == 0 ? give(device, 0) : CUDA_ERROR_INVALID_DEVICE; });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  return call(__func__, [&] {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", fake_cuda::device_name);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call(__func__, [&] {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    const auto known = fake_cuda::device_attribute(static_cast<int>(attribute));
    return known ? give(value, *known) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  return call(__func__, [&] { return give(bytes, State::get().settings().capacity); });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* to, CUdevice) {
  return call(__func__, [&] { return give(to, context()); });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return call(__func__, [] { return CUDA_SUCCESS; });
}

CUresult cuCtxGetCurrent(CUcontext* to) {
  return call(__func__, [&] { return give(to, context()); });
}

CUresult cuCtxSetCurrent(CUcontext) {
  return call(__func__, [] { return CUDA_SUCCESS; });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return call(__func__, [&] { return give(device, 0); });
}

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call(__func__, [&] {
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
  return virtual_call(__func__, [&] {
    if (prop == nullptr || !is_on_the_card(prop->location)) return CUDA_ERROR_INVALID_VALUE;
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
    const bool valid = prop != nullptr && flags == 0 && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                       is_on_the_card(prop->location);
    return valid ? VirtualMemory::get().create(handle, bytes) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return virtual_call(__func__, [&] { return VirtualMemory::get().release(handle); });
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
    if (access == nullptr || count != 1 || !is_on_the_card(access->location)) return CUDA_ERROR_INVALID_VALUE;
    const bool readable = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const bool writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return VirtualMemory::get().set_access(address, bytes, readable, writable);
  });
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* result);
}

namespace {

struct Entry {
  std::string_view name;  // without the suffix of its version
  void* function;
};

template <class Function>
Entry entry(std::string_view name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

const Entry* find_entry(std::string_view name) {
  static const Entry entries[] = {
      entry("cuInit", cuInit),
      entry("cuDriverGetVersion", cuDriverGetVersion),
      entry("cuDeviceGetCount", cuDeviceGetCount),
      entry("cuDeviceGet", cuDeviceGet),
      entry("cuDeviceGetName", cuDeviceGetName),
      entry("cuDeviceGetAttribute", cuDeviceGetAttribute),
      entry("cuDeviceTotalMem", cuDeviceTotalMem_v2),
      entry("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain),
      entry("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2),
      entry("cuCtxGetCurrent", cuCtxGetCurrent),
      entry("cuCtxSetCurrent", cuCtxSetCurrent),
      entry("cuCtxGetDevice", cuCtxGetDevice),
      entry("cuMemGetInfo", cuMemGetInfo_v2),
      entry("cuGetErrorName", cuGetErrorName),
      entry("cuGetErrorString", cuGetErrorString),
      entry("cuMemGetAllocationGranularity", cuMemGetAllocationGranularity),
      entry("cuMemAddressReserve", cuMemAddressReserve),
      entry("cuMemAddressFree", cuMemAddressFree),
      entry("cuMemCreate", cuMemCreate),
      entry("cuMemRelease", cuMemRelease),
      entry("cuMemMap", cuMemMap),
      entry("cuMemUnmap", cuMemUnmap),
      entry("cuMemSetAccess", cuMemSetAccess),
      entry("cuGetProcAddress", cuGetProcAddress_v2),
  };
  for (const Entry& candidate : entries) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

}  // namespace

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* result) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Entry* found = find_entry(symbol);
  *function = found == nullptr ? nullptr : found->function;
  if (result != nullptr) {
    *result = found == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return found == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
