#include "tests/fake_cuda/device.h"

#include <cuda.h>

#include <algorithm>

#include "tests/fake_cuda/state.h"

namespace fake_cuda {
namespace {

struct Error {
  int number;
  const char* name;
  const char* text;
};

constexpr Error errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {712, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {713, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {800, "cudaErrorNotPermitted", "operation not permitted"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {999, "cudaErrorUnknown", "unknown error"},
};

const Error* find_error(int number) {
  const auto* found = std::find_if(std::begin(errors), std::end(errors),
                                   [&](const Error& error) { return error.number == number; });
  return found == std::end(errors) ? nullptr : found;
}

}  // namespace

std::optional<int> device_attribute(int attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return max_threads;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      return static_cast<int>(max_block[0]);
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return static_cast<int>(max_block[1]);
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return static_cast<int>(max_block[2]);
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return static_cast<int>(max_grid[0]);
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      return static_cast<int>(max_grid[1]);
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return static_cast<int>(max_grid[2]);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return static_cast<int>(shared_bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return static_cast<int>(shared_bytes_when_asked);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return static_cast<int>(shared_bytes_when_asked) + 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return capability_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return capability_minor;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1'000'000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 1'000'000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 4096;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 32 << 20;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return copy_engines;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      return 0;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return 0;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return 0;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return State::get().settings().virtual_memory ? 1 : 0;
    default:
      return std::nullopt;
  }
}

const char* error_name(int number) {
  const Error* error = find_error(number);
  return error == nullptr ? "unrecognized error code" : error->name;
}

const char* error_text(int number) {
  const Error* error = find_error(number);
  return error == nullptr ? "unrecognized error code" : error->text;
}

}  // namespace fake_cuda
