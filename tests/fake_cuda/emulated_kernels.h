// Kernels for the tests of the fakes: nvcc compiles the file for the program, the shim for the fake.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

// Each launches one kernel; `blocks` and `threads` are one-dimensional.

// y[i] = factor x[i] + y[i]
cudaError_t launch_axpy(int count, float factor, const float* x, float* y, cudaStream_t stream);
// The same by <<<>>>, which nvcc alone understands.
void launch_axpy_by_chevrons(int count, float factor, const float* x, float* y, cudaStream_t stream);
// sums[block] = of x[block * threads ...], by shuffles, shared memory and __syncthreads.
cudaError_t launch_block_sum(int blocks, int threads, const float* x, float* sums, cudaStream_t stream);
// y is x back to front within each block, through dynamic shared memory.
cudaError_t launch_reverse(int blocks, int threads, const int* x, int* y, std::size_t shared_bytes,
                           cudaStream_t stream);
// Each of `threads` writes blockIdx, threadIdx, gridDim and blockDim in twelve ints.
cudaError_t launch_positions(dim3 blocks, dim3 threads, int* out, cudaStream_t stream);
// out[lane]: values of 8 lanes up by one, down by one, xor 1 and from lane 3, as digits of a number.
cudaError_t launch_shuffles(int* out, cudaStream_t stream);
// The first word of static and of dynamic shared memory as a block finds it.
cudaError_t launch_fresh_shared(unsigned* out, cudaStream_t stream);
// y[i] is x[i - 1] within each block, and its first x[0]; without the barrier that it needs, unless
// `synchronises`.
cudaError_t launch_neighbour(int blocks, int threads, bool synchronises, const int* x, int* y,
                             cudaStream_t stream);
// The same of each warp, by shared memory and __syncwarp().
cudaError_t launch_neighbour_in_warp(int blocks, int threads, bool synchronises, const int* x, int* y,
                                     cudaStream_t stream);
// Takes a struct, by value.
struct Pair {
  double first;
  char second;
};
cudaError_t launch_store_pair(Pair pair, double* out, cudaStream_t stream);
// Only half of the block comes to the barrier.
cudaError_t launch_half_a_barrier(cudaStream_t stream);
// Not named by STOWAGE_CUDA_KERNEL.
cudaError_t launch_unregistered(cudaStream_t stream);
