// Launching a kernel from C++. Every launch of this folder goes through here: no <<<>>>, so that a C++
// compiler can read the .cu files too.
//
// Stream order; returns at once. Throws DeviceError that names the kernel.
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
  std::size_t shared_bytes = 0;  // dynamic, of a block (shared_memory.h)
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

}  // namespace stowage::cuda
