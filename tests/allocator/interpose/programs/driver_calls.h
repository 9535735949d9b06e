// Driver calls that the programs have in common.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "tests/allocator/interpose/programs/expectation.h"

inline void ok(CUresult result) { require(result == CUDA_SUCCESS, "a call succeeds"); }

inline CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr address = 0;
  ok(cuMemAlloc(&address, bytes));
  asked("device", bytes);
  return address;
}

inline std::size_t free_now() {
  std::size_t free = 0, total = 0;
  ok(cuMemGetInfo(&free, &total));
  return free;
}
