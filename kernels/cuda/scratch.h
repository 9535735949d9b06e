// The lane's scratch as an array. Kernels of one lane run in stream order and share it: what lies there is
// overwritten by the lane's next kernel or GEMM.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stowage::cuda {

struct LaneResources;

// The scratch but for its last 256 bytes, which outlive GEMMs: see kept_scratch.
std::size_t usable_scratch(const LaneResources& lane);

// Throws InvalidInput that names `user` where the lane has less.
void* scratch_bytes(void* stream, std::size_t bytes, const char* user);

template <class T>
T* scratch_for(void* stream, std::int64_t count, const char* user) {
  return static_cast<T*>(scratch_bytes(stream, static_cast<std::size_t>(count) * sizeof(T), user));
}

// 256 bytes that an op may keep through its own kernels and GEMMs. Throws as above.
void* kept_scratch(void* stream, const char* user);

}  // namespace stowage::cuda
