// Compiles CUDA kernels as C++: included by force in front of a .cu file that the host compiler reads
// (-x c++ -include tests/fake_cuda/shim.h -DSTOWAGE_CUDA_SHIM), so that fake_cuda can run the kernels.
//
// Files must keep to: threadIdx, blockIdx, blockDim, gridDim, warpSize; __shared__ arrays of trivial
// types inside kernels; stowage_shim_dynamic_shared(); __syncthreads(), __syncwarp(), shuffles of values
// of up to 8 bytes and matrix instructions (shim_fragments.h) that all 32 lanes of a warp take part in.
// Kernels are launched by cudaLaunchKernel. A barrier or shuffle that some thread of the block or warp never
// reaches ends the program, also where a real card would let it pass. Shared memory holds 0xff bytes or
// another block's leavings at first.
#pragma once

#ifndef __cplusplus
#error "shim.h is for C++"
#endif

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tests/fake_cuda/shim_fragments.h"
#include "tests/fake_cuda/shim_runtime.h"

#undef __shared__
#define __shared__ static thread_local
#undef __constant__
#define __constant__ static const
#undef __grid_constant__
#define __grid_constant__
#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx (stowage_shim_position.thread)
#define blockIdx (stowage_shim_position.block)
#define blockDim (stowage_shim_position.block_size)
#define gridDim (stowage_shim_position.grid_size)
#define warpSize 32

inline void __syncthreads() { stowage_shim_sync_threads(); }

namespace stowage_shim {

inline void check_mask(unsigned mask) {
  if (mask == 0xffffffffU) return;
  std::fprintf(stderr, "shim: a warp function's mask is 0x%x; only whole warps (0xffffffff) are run\n", mask);
  std::abort();
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  check_mask(mask);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = stowage_shim_shuffle(bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Calls a kernel, and names it by the symbol that holds it.
template <auto kernel>
struct Registration;

template <class... Parameters, void (*kernel)(Parameters...)>
struct Registration<kernel> {
  static constexpr std::size_t sizes[] = {sizeof(Parameters)..., 0};

  Registration() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(kernel), &info) == 0 || info.dli_sname == nullptr) {
      std::fputs("shim: a kernel without a name: is it static, or in an anonymous namespace?\n", stderr);
      std::abort();
    }
    stowage_shim_register_kernel(info.dli_sname, run, sizes, sizeof...(Parameters));
  }

  static void run(void** args) { call(args, std::index_sequence_for<Parameters...>{}); }

  template <std::size_t... indices>
  static void call([[maybe_unused]] void** args, std::index_sequence<indices...>) {
    kernel(*static_cast<std::remove_const_t<Parameters>*>(args[indices])...);
  }
};

}  // namespace stowage_shim

inline void __syncwarp(unsigned mask = 0xffffffffU) {
  stowage_shim::check_mask(mask);
  stowage_shim_sync_warp();
}

// Shuffles within groups of `width` lanes; a lane without a partner keeps its own value.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const unsigned group = static_cast<unsigned>(width);
  const unsigned first = stowage_shim_lane() / group * group;
  return stowage_shim::shuffle(mask, value, first + static_cast<unsigned>(source) % group);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  const unsigned group = static_cast<unsigned>(width);
  const unsigned lane = stowage_shim_lane();
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  return stowage_shim::shuffle(mask, value, source / group > lane / group ? lane : source);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = warpSize) {
  const unsigned group = static_cast<unsigned>(width);
  const unsigned lane = stowage_shim_lane();
  return stowage_shim::shuffle(mask, value, lane % group + distance < group ? lane + distance : lane);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = warpSize) {
  const unsigned lane = stowage_shim_lane();
  return stowage_shim::shuffle(mask, value,
                               lane % static_cast<unsigned>(width) >= distance ? lane - distance : lane);
}

template <class T>
inline T __ldg(const T* address) {
  return *address;
}

// Blocks run one after another, streams side by side.
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// Returns what was there; adds 1, and begins at 0 again behind `last`.
inline unsigned atomicInc(unsigned* address, unsigned last) {
  const std::atomic_ref<unsigned> count(*address);
  unsigned before = count.load();
  while (!count.compare_exchange_weak(before, before >= last ? 0 : before + 1)) {
  }
  return before;
}

// A launch returns before its kernel runs, so that the arguments must be kept, and their sizes known.
// The registry's own form tells no sizes.
#include "kernels/cuda/kernel_registry.h"
#undef STOWAGE_CUDA_KERNEL
#define STOWAGE_SHIM_JOIN_(a, b) a##b
#define STOWAGE_SHIM_JOIN(a, b) STOWAGE_SHIM_JOIN_(a, b)
#define STOWAGE_CUDA_KERNEL(...) \
  static const ::stowage_shim::Registration<&__VA_ARGS__> STOWAGE_SHIM_JOIN(shim_registration_, __COUNTER__)
