// Launches kernels from C++. Every launch of this folder goes through here: no <<<>>>, so that a C++ compiler
// can read the .cu files too.
//
// Launches in stream order, and returns at once. Throws DeviceError that names the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace stowage::cuda {

struct Extent {
  std::int64_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Extent blocks;
  int threads = 1;               // per block
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block (shared_memory.h)
};

// `name` is for messages. args[i] points to argument i. `stream` is a cudaStream_t.
void launch_kernel(const void* kernel, const char* name, const LaunchShape& shape, void** args, void* stream);

// Converts the arguments to the kernel's parameters.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const char* name, const LaunchShape& shape, void* stream,
            const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  std::tuple<Parameters...> values{static_cast<Parameters>(arguments)...};
  std::apply(
      [&](auto&... value) {
        void* args[] = {&value..., nullptr};
        launch_kernel(reinterpret_cast<const void*>(kernel), name, shape, args, stream);
      },
      values);
}

constexpr std::int64_t blocks_for(std::int64_t count, std::int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

// Scratch: the lane's, as an array. Kernels of one lane run in stream order and share it: the lane's next
// kernel or GEMM overwrites it.

struct LaneResources;

// Bytes of the scratch without its last 256, which outlive GEMMs: see kept_scratch and finished_blocks.
std::size_t usable_scratch(const LaneResources& lane);

// Throws InvalidInput that names `user` if the lane has less.
void* scratch_bytes(void* stream, std::size_t bytes, const char* user);

template <class T>
T* scratch_for(void* stream, std::int64_t count, const char* user) {
  return static_cast<T*>(scratch_bytes(stream, static_cast<std::size_t>(count) * sizeof(T), user));
}

// 128 bytes that an op may keep through its own kernels and GEMMs. Throws as above.
void* kept_scratch(void* stream, const char* user);

// The lane's count of blocks that have finished, 0 at first. A kernel that counts (by atomicInc) leaves it at
// 0. Throws as above, and DeviceError.
unsigned* finished_blocks(void* stream, const char* user);

}  // namespace stowage::cuda
