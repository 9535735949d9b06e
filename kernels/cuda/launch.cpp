#include "kernels/cuda/launch.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "src/device/cuda/check.h"
#include "src/device/cuda/lane_resources.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

constexpr std::size_t shared_bytes_without_asking = 48 << 10;

dim3 to_dim3(const Extent& extent) {
  return {static_cast<unsigned>(extent.x), static_cast<unsigned>(extent.y), static_cast<unsigned>(extent.z)};
}

constexpr std::size_t kept_bytes = 256;

[[noreturn]] void refuse(const char* user, std::size_t wanted, const LaneResources& lane) {
  throw InvalidInput(fmt::format("{}: needs {} bytes of scratch, the lane has {}; raise CudaOptions::scratch",
                                 user, wanted, lane.scratch_bytes));
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

std::size_t usable_scratch(const LaneResources& lane) {
  if (lane.scratch_bytes < kept_bytes) return 0;
  return (lane.scratch_bytes - kept_bytes) / kept_bytes *
         kept_bytes;  // whole multiples, so that the kept bytes behind them are aligned
}

void* scratch_bytes(void* stream, std::size_t bytes, const char* user) {
  const LaneResources& lane = lane_resources(stream);
  if (bytes > usable_scratch(lane)) refuse(user, bytes + kept_bytes, lane);
  return lane.scratch;
}

void* kept_scratch(void* stream, const char* user) {
  const LaneResources& lane = lane_resources(stream);
  if (lane.scratch_bytes < kept_bytes) refuse(user, kept_bytes, lane);
  return static_cast<std::byte*>(lane.scratch) + usable_scratch(lane);
}

unsigned* finished_blocks(void* stream, const char* user) {
  void* const count = static_cast<std::byte*>(kept_scratch(stream, user)) + kept_bytes / 2;
  LaneResources& lane = lane_resources(stream);
  if (!lane.counts_from_zero)
    check(cudaMemsetAsync(count, 0, sizeof(unsigned), static_cast<cudaStream_t>(stream)), "cudaMemsetAsync",
          user);
  lane.counts_from_zero = true;
  return static_cast<unsigned*>(count);
}

}  // namespace stowage::cuda
