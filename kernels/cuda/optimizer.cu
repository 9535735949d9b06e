#include "kernels/cuda/optimizer.h"

#include <algorithm>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/scratch.h"

namespace stowage::cuda {

inline constexpr int norm_threads = 256;
inline constexpr std::int64_t most_square_chunks = 1024;
inline constexpr std::int64_t least_square_chunk = 8192;

// A block sums its chunk, a multiple of the pack's size.
template <class T>
__global__ void square_partial_kernel(std::int64_t count, std::int64_t chunk, const T* x, double* partial,
                                      bool aligned) {
  __shared__ double shared[norm_threads / warp_size];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * chunk;
  const std::int64_t last = first + chunk < count ? first + chunk : count;
  double sum = 0;
  for (std::int64_t i = first + static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < last;
       i += static_cast<std::int64_t>(norm_threads) * pack_size<T>) {
    for (const float value : load_pack(x + i, last - i, aligned).values) {
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  sum = reduce_block<Sum>(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void square_total_kernel(std::int64_t chunks, const double* partial, double* sum) {
  __shared__ double shared[norm_threads / warp_size];
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < chunks; i += norm_threads) mine += partial[i];
  mine = reduce_block<Sum>(mine, shared);
  if (threadIdx.x == 0) *sum = mine;
}

// The addresses of some of the sums: a kernel's parameters hold no more.
inline constexpr int sums_per_launch = 256;
struct SumAddresses {
  const double* sums[sums_per_launch];
  int count;
  bool first, last;
  double limit, loss_scale;
};

// One block. Between launches result[0] is the sum so far.
__global__ void clip_kernel(SumAddresses of, double* result) {
  __shared__ double shared[sums_per_launch];
  const int i = static_cast<int>(threadIdx.x);
  if (i < of.count) shared[i] = *of.sums[i];
  __syncthreads();
  if (i != 0) return;
  double sum = of.first ? 0 : result[0];
  for (int k = 0; k < of.count; ++k) sum += shared[k];
  if (!of.last) {
    result[0] = sum;
    return;
  }
  const double norm = std::sqrt(sum) / of.loss_scale;
  result[0] = norm;
  result[1] = of.limit > 0 && norm > of.limit ? of.limit / norm : 1;
}

template <class T>
void square_sum(std::int64_t count, const T* x, double* sum, void* stream) {
  const std::int64_t unit = std::max(least_square_chunk, blocks_for(count, most_square_chunks));
  const std::int64_t chunk = blocks_for(unit, pack_size<T>) * pack_size<T>;
  const std::int64_t chunks = blocks_for(count, chunk);
  auto* partial = scratch_for<double>(stream, chunks, "square_sum");
  if (chunks > 0) {
    launch(square_partial_kernel<T>, "square_sum", {{chunks}, norm_threads}, stream, count, chunk, x, partial,
           is_aligned(x));
  }
  launch(square_total_kernel, "square_sum", {{}, norm_threads}, stream, chunks, partial, sum);
}

void clip(std::span<const double* const> sums, double limit, double* result, void* stream,
          double loss_scale) {
  for (std::size_t begin = 0; begin < sums.size(); begin += sums_per_launch) {
    const std::size_t end = std::min<std::size_t>(sums.size(), begin + sums_per_launch);
    SumAddresses of{};
    std::copy(sums.begin() + static_cast<std::ptrdiff_t>(begin),
              sums.begin() + static_cast<std::ptrdiff_t>(end), of.sums);
    of.count = static_cast<int>(end - begin);
    of.first = begin == 0;
    of.last = end == sums.size();
    of.limit = limit;
    of.loss_scale = loss_scale;
    launch(clip_kernel, "clip", {{}, sums_per_launch}, stream, of, result);
  }
}

template void square_sum(std::int64_t, const float*, double*, void*);
template void square_sum(std::int64_t, const Bfloat16*, double*, void*);
template void square_sum(std::int64_t, const Float16*, double*, void*);

STOWAGE_CUDA_KERNEL(square_partial_kernel<float>);
STOWAGE_CUDA_KERNEL(square_partial_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(square_partial_kernel<Float16>);
STOWAGE_CUDA_KERNEL(square_total_kernel);
STOWAGE_CUDA_KERNEL(clip_kernel);

}  // namespace stowage::cuda
