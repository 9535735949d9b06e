#include "tests/fake_cuda/emulated_kernels.h"

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/shared_memory.h"

namespace fake_cuda_test {

template <class T>
__global__ void axpy_kernel(int count, T factor, const T* x, T* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = factor * x[i] + y[i];
}

__global__ void block_sum_kernel(const float* x, float* sums) {
  __shared__ float parts[32];
  float value = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffU, value, distance);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += parts[warp];
    sums[blockIdx.x] = sum;
  }
}

__global__ void reverse_kernel(const int* x, int* y) {
  int* const values = stowage::cuda::dynamic_shared<int>();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  values[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void positions_kernel(int* out) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned values[12] = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z,
                               gridDim.x,  gridDim.y,  gridDim.z,  blockDim.x,  blockDim.y,  blockDim.z};
  for (int k = 0; k < 12; ++k) out[(block * threads + thread) * 12 + k] = static_cast<int>(values[k]);
}

__global__ void shuffles_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const int up = __shfl_up_sync(0xffffffffU, lane % 8, 1, 8);
  const int down = __shfl_down_sync(0xffffffffU, lane % 8, 1, 8);
  const int other = __shfl_xor_sync(0xffffffffU, lane % 8, 1, 8);
  const int third = __shfl_sync(0xffffffffU, lane, 3, 8);
  __syncwarp();
  out[lane] = ((third * 10 + up) * 10 + down) * 10 + other;
}

__global__ void fresh_shared_kernel(unsigned* out) {
  __shared__ unsigned words[8];
  unsigned* const dynamic = stowage::cuda::dynamic_shared<unsigned>();
  out[2 * blockIdx.x] = words[threadIdx.x];
  out[2 * blockIdx.x + 1] = dynamic[threadIdx.x];
  words[threadIdx.x] = dynamic[threadIdx.x] = 1;
}

__global__ void neighbour_kernel(bool synchronises, const int* x, int* y) {
  __shared__ int values[1024];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  values[threadIdx.x] = x[i];
  if (synchronises) __syncthreads();
  y[i] = values[threadIdx.x == 0 ? 0 : threadIdx.x - 1];
}

__global__ void neighbour_in_warp_kernel(bool synchronises, const int* x, int* y) {
  __shared__ int values[1024];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  values[threadIdx.x] = x[i];
  if (synchronises) __syncwarp();
  y[i] = values[threadIdx.x % 32 == 0 ? threadIdx.x : threadIdx.x - 1];
}

__global__ void store_pair_kernel(Pair pair, double* out) {
  out[0] = pair.first;
  out[1] = pair.second;
}

__global__ void half_a_barrier_kernel() {
  if (threadIdx.x < 16) return;
  __syncthreads();
}

__global__ void unregistered_kernel() {}

STOWAGE_CUDA_KERNEL(axpy_kernel<float>);
STOWAGE_CUDA_KERNEL(block_sum_kernel);
STOWAGE_CUDA_KERNEL(reverse_kernel);
STOWAGE_CUDA_KERNEL(positions_kernel);
STOWAGE_CUDA_KERNEL(shuffles_kernel);
STOWAGE_CUDA_KERNEL(fresh_shared_kernel);
STOWAGE_CUDA_KERNEL(neighbour_kernel);
STOWAGE_CUDA_KERNEL(neighbour_in_warp_kernel);
STOWAGE_CUDA_KERNEL(store_pair_kernel);
STOWAGE_CUDA_KERNEL(half_a_barrier_kernel);

template <class Function, class... Arguments>
cudaError_t launch(Function* kernel, dim3 blocks, dim3 threads, std::size_t shared_bytes, cudaStream_t stream,
                   Arguments... arguments) {
  void* args[] = {&arguments..., nullptr};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, threads, args, shared_bytes, stream);
}

dim3 line(int count) { return dim3(static_cast<unsigned>(count)); }

}  // namespace fake_cuda_test

using namespace fake_cuda_test;

cudaError_t launch_axpy(int count, float factor, const float* x, float* y, cudaStream_t stream) {
  return launch(axpy_kernel<float>, line((count + 255) / 256), line(256), 0, stream, count, factor, x, y);
}

#ifdef __CUDACC__
void launch_axpy_by_chevrons(int count, float factor, const float* x, float* y, cudaStream_t stream) {
  axpy_kernel<float><<<line((count + 255) / 256), line(256), 0, stream>>>(count, factor, x, y);
}
#endif

cudaError_t launch_block_sum(int blocks, int threads, const float* x, float* sums, cudaStream_t stream) {
  return launch(block_sum_kernel, line(blocks), line(threads), 0, stream, x, sums);
}

cudaError_t launch_reverse(int blocks, int threads, const int* x, int* y, std::size_t shared_bytes,
                           cudaStream_t stream) {
  return launch(reverse_kernel, line(blocks), line(threads), shared_bytes, stream, x, y);
}

cudaError_t launch_positions(dim3 blocks, dim3 threads, int* out, cudaStream_t stream) {
  return launch(positions_kernel, blocks, threads, 0, stream, out);
}

cudaError_t launch_shuffles(int* out, cudaStream_t stream) {
  return launch(shuffles_kernel, line(1), line(32), 0, stream, out);
}

cudaError_t launch_fresh_shared(unsigned* out, cudaStream_t stream) {
  return launch(fresh_shared_kernel, line(2), line(1), sizeof(unsigned), stream, out);
}

cudaError_t launch_neighbour(int blocks, int threads, bool synchronises, const int* x, int* y,
                             cudaStream_t stream) {
  return launch(neighbour_kernel, line(blocks), line(threads), 0, stream, synchronises, x, y);
}

cudaError_t launch_neighbour_in_warp(int blocks, int threads, bool synchronises, const int* x, int* y,
                                     cudaStream_t stream) {
  return launch(neighbour_in_warp_kernel, line(blocks), line(threads), 0, stream, synchronises, x, y);
}

cudaError_t launch_store_pair(Pair pair, double* out, cudaStream_t stream) {
  return launch(store_pair_kernel, line(1), line(1), 0, stream, pair, out);
}

cudaError_t launch_half_a_barrier(cudaStream_t stream) {
  return launch(half_a_barrier_kernel, line(1), line(32), 0, stream);
}

cudaError_t launch_unregistered(cudaStream_t stream) {
  return launch(unregistered_kernel, line(1), line(1), 0, stream);
}
