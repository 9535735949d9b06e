#include "kernels/cuda/launch.h"

#include <cuda_runtime_api.h>

#include "src/device/cuda/check.h"

namespace stowage::cuda {
namespace {

constexpr std::size_t shared_bytes_without_asking = 48 << 10;

dim3 to_dim3(const Extent& extent) {
  return {static_cast<unsigned>(extent.x), static_cast<unsigned>(extent.y), static_cast<unsigned>(extent.z)};
}

}  // namespace

void launch_kernel(const void* kernel, const char* name, const LaunchShape& shape, void** args,
                   void* stream) {
  if (shape.shared_bytes > shared_bytes_without_asking) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "cudaFuncSetAttribute", name);
  }
  check(cudaLaunchKernel(kernel, to_dim3(shape.blocks), dim3(static_cast<unsigned>(shape.threads)), args,
                         shape.shared_bytes, static_cast<cudaStream_t>(stream)),
        "cudaLaunchKernel", name);
}

}  // namespace stowage::cuda
