// libcudart: devices, versions, errors, entry points of the driver.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "tests/fake_cuda/cudart_call.h"
#include "tests/fake_cuda/device.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/stream.h"
#include "tests/fake_cuda/virtual_memory.h"

using fake_cuda::call;
using fake_cuda::call_without_context;
using fake_cuda::current_device;
using fake_cuda::State;

namespace {

cudaError_t check_ordinal(int device) {
  return device >= 0 && device < State::get().settings().cards ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaDeviceProp properties(int device) {
  using namespace fake_cuda;
  cudaDeviceProp prop{};
  std::snprintf(prop.name, sizeof(prop.name), "%s", device_name);
  prop.totalGlobalMem = State::get().settings().capacity;
  prop.sharedMemPerBlock = shared_bytes;
  prop.sharedMemPerBlockOptin = shared_bytes_when_asked;
  prop.sharedMemPerMultiprocessor = shared_bytes_when_asked + 1024;
  prop.regsPerBlock = prop.regsPerMultiprocessor = 65536;
  prop.warpSize = 32;
  prop.maxThreadsPerBlock = max_threads;
  prop.maxThreadsPerMultiProcessor = 2048;
  for (int i = 0; i < 3; ++i) {
    prop.maxThreadsDim[i] = static_cast<int>(max_block[i]);
    prop.maxGridSize[i] = static_cast<int>(max_grid[i]);
  }
  prop.major = capability_major;
  prop.minor = capability_minor;
  prop.multiProcessorCount = multiprocessors;
  prop.canMapHostMemory = prop.unifiedAddressing = prop.concurrentKernels = 1;
  prop.asyncEngineCount = copy_engines;
  prop.streamPrioritiesSupported = prop.hostRegisterSupported = 1;
  prop.uuid.bytes[sizeof(prop.uuid.bytes) - 1] =
      static_cast<char>(1 + physical_card(State::get().settings(), device));
  prop.pciBusID = 1;
  prop.memoryBusWidth = 4096;
  prop.l2CacheSize = 32 << 20;
  return prop;
}

cudaError_t find_entry_point(const char* symbol, void** function, unsigned version, unsigned long long flags,
                             cudaDriverEntryPointQueryResult* result) {
  if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
  *function = nullptr;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto find =
      library == nullptr
          ? nullptr
          : reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(library, "cuGetProcAddress_v2"));
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult status = find == nullptr ? CUDA_ERROR_NOT_FOUND
                                          : find(symbol, function, static_cast<int>(version), flags, &found);
  if (result != nullptr) *result = static_cast<cudaDriverEntryPointQueryResult>(found);
  return status == CUDA_SUCCESS || result != nullptr ? cudaSuccess : cudaErrorSymbolNotFound;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return call_without_context(__func__, [&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = State::get().settings().cards;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call_without_context(__func__, [&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = current_device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call_without_context(__func__, [&] {
    if (check_ordinal(device) != cudaSuccess) return cudaErrorInvalidDevice;
    current_device = device;
    State::get().make_context(device);
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return call_without_context(__func__, [&] {
    if (check_ordinal(device) == cudaSuccess) State::get().make_context(device);
    return check_ordinal(device);
  });
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return call_without_context(__func__, [] { return cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return call_without_context(__func__, [&] {
    if (prop == nullptr) return cudaErrorInvalidValue;
    if (check_ordinal(device) != cudaSuccess) return cudaErrorInvalidDevice;
    *prop = properties(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call_without_context(__func__, [&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (check_ordinal(device) != cudaSuccess) return cudaErrorInvalidDevice;
    const auto known = fake_cuda::device_attribute(static_cast<int>(attribute));
    if (!known) return cudaErrorInvalidValue;
    *value = *known;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return call_without_context(__func__, [&] {
    const int needed = static_cast<int>(std::strlen(fake_cuda::pci_bus_id)) + 1;
    if (id == nullptr || length < needed) return cudaErrorInvalidValue;
    std::memcpy(id, fake_cuda::pci_bus_id, static_cast<std::size_t>(needed));
    return check_ordinal(device);
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call(__func__, [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = fake_cuda::greatest_priority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call(__func__, [] {
    if (const int forbidden = fake_cuda::Captures::get().forbids_waiting_for_all())
      return static_cast<cudaError_t>(forbidden);
    fake_cuda::Streams::get().synchronise_all();
    return static_cast<cudaError_t>(State::get().lost());
  });
}

cudaError_t cudaDeviceReset() {
  return call_without_context(__func__, [] {
    fake_cuda::Streams::get().clear();
    fake_cuda::VirtualMemory::get().clear();
    fake_cuda::Memory::get().clear();
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return cudaErrorInvalidValue;
  *version = State::get().settings().driver == fake_cuda_no_driver ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return cudaErrorInvalidValue;
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = fake_cuda::last_error;
  fake_cuda::last_error = static_cast<cudaError_t>(State::get().lost());
  return error;
}

cudaError_t cudaPeekAtLastError() { return fake_cuda::last_error; }

const char* cudaGetErrorName(cudaError_t error) { return fake_cuda::error_name(static_cast<int>(error)); }
const char* cudaGetErrorString(cudaError_t error) { return fake_cuda::error_text(static_cast<int>(error)); }

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return call_without_context(
      __func__, [&] { return find_entry_point(symbol, function, CUDART_VERSION, flags, result); });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  return call_without_context(__func__,
                              [&] { return find_entry_point(symbol, function, version, flags, result); });
}
}
