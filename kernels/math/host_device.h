// Scalar math that CPU and CUDA kernels share is marked so that nvcc compiles it for both sides.
#pragma once

#ifdef __CUDACC__
#define STOWAGE_HOST_DEVICE __host__ __device__ inline
#else
#define STOWAGE_HOST_DEVICE [[gnu::always_inline]] inline
#endif
