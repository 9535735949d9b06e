// libcudart: kernels, and what nvcc's generated code calls to register and launch them.
#include <array>
#include <cstring>
#include <vector>

#include "tests/fake_cuda/cudart_call.h"
#include "tests/fake_cuda/device.h"
#include "tests/fake_cuda/kernel_table.h"
#include "tests/fake_cuda/stream.h"

using fake_cuda::call;
using fake_cuda::GridSize;
using fake_cuda::KernelTable;

namespace {

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

bool fits(const dim3& size, const std::array<unsigned, 3>& most) {
  return size.x > 0 && size.y > 0 && size.z > 0 && size.x <= most[0] && size.y <= most[1] &&
         size.z <= most[2];
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** args, std::size_t shared_bytes,
                   cudaStream_t stream) {
  const auto known = KernelTable::get().function(function);
  if (!known) return cudaErrorInvalidDeviceFunction;
  const auto threads = std::size_t{block.x} * block.y * block.z;
  if (!fits(grid, fake_cuda::max_grid) || !fits(block, fake_cuda::max_block) ||
      threads > std::size_t{fake_cuda::max_threads}) {
    return cudaErrorInvalidConfiguration;
  }
  if (shared_bytes > known->dynamic_shared_bytes) return cudaErrorInvalidValue;
  const auto kernel = KernelTable::get().kernel(known->name);
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  auto work = fake_cuda::launch_work(*kernel, GridSize{grid.x, grid.y, grid.z},
                                     GridSize{block.x, block.y, block.z}, shared_bytes, args);
  const bool done = fake_cuda::Streams::get().enqueue(stream, std::move(work)).has_value();
  return done ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t set_attribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (!KernelTable::get().function(function)) return cudaErrorInvalidDeviceFunction;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  const bool fits = value >= 0 && static_cast<std::size_t>(value) <= fake_cuda::shared_bytes_when_asked;
  if (!fits) return cudaErrorInvalidValue;
  KernelTable::get().allow_shared_bytes(function, static_cast<std::size_t>(value));
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                             std::size_t shared_bytes, cudaStream_t stream) {
  return call(__func__, [&] { return launch(function, grid, block, args, shared_bytes, stream); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** args) {
  return call(__func__, [&] {
    if (config == nullptr) return cudaErrorInvalidValue;
    return launch(function, config->gridDim, config->blockDim, args, config->dynamicSmemBytes,
                  config->stream);
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return call(__func__, [&] { return set_attribute(function, attribute, value); });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call(__func__, [&] {
    const auto known = KernelTable::get().function(function);
    if (!known) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = fake_cuda::max_threads;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 10 * fake_cuda::capability_major;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(known->dynamic_shared_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          std::size_t) {
  return call(__func__, [&] {
    if (!KernelTable::get().function(function)) return cudaErrorInvalidDeviceFunction;
    if (threads <= 0 || threads > fake_cuda::max_threads) return cudaErrorInvalidValue;
    *blocks = 2048 / threads;
    return cudaSuccess;
  });
}

// A handle is the host function itself.
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* function) {
  *handle = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return call("cudaLaunchKernel", [&] { return launch(kernel, grid, block, args, shared_bytes, stream); });
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration& top = configurations.back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  configurations.pop_back();
  return cudaSuccess;
}

void** __cudaRegisterFatBinary(void* binary) {
  static void* handle = nullptr;
  handle = binary;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* device_name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  KernelTable::get().add_function(host_function, device_name);
}

// Kernels that use device variables are not run: the shim has no way to name them.
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterHostVar(void**, const char*, char*, std::size_t) {}
}
