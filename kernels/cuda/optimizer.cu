#include "kernels/cuda/optimizer.h"

#include <algorithm>

#include "kernels/cuda/kernel_registry.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/reduce.h"

namespace stowage::cuda {

inline constexpr int norm_threads = 256;
inline constexpr std::int64_t most_square_chunks = 1024;
inline constexpr std::int64_t least_square_chunk = 8192;

// A block sums a chunk of a piece; every piece has `chunks` chunks. A chunk is a multiple of the pack's size.
// `aligned`: whether every piece's start is.
template <class T>
__global__ void square_partial_kernel(std::int64_t count, std::int64_t piece, std::int64_t chunks,
                                      std::int64_t chunk, const T* x, double* partial, bool aligned) {
  __shared__ double shared[norm_threads / warp_size];
  const std::int64_t start = blockIdx.x / chunks * piece;
  const std::int64_t end = start + piece < count ? start + piece : count;
  const std::int64_t first = start + blockIdx.x % chunks * chunk;
  const std::int64_t last = first + chunk < end ? first + chunk : end;
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

// A block sums the chunks of a piece.
__global__ void square_total_kernel(std::int64_t chunks, const double* partial, double* sums) {
  __shared__ double shared[norm_threads / warp_size];
  partial += blockIdx.x * chunks;
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < chunks; i += norm_threads) mine += partial[i];
  mine = reduce_block<Sum>(mine, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = mine;
}

// Addresses of some of the sums: as many as a kernel's parameters hold.
inline constexpr int sums_per_launch = 256;
struct SumAddresses {
  const double* sums[sums_per_launch];
  int count;
  bool first;
};

// Block p adds the sums' elements p, in order, to totals[p], which counts as 0 at first.
__global__ void piece_totals_kernel(SumAddresses of, double* totals) {
  __shared__ double shared[sums_per_launch];
  const int i = static_cast<int>(threadIdx.x);
  if (i < of.count) shared[i] = of.sums[i][blockIdx.x];
  __syncthreads();
  if (i != 0) return;
  double sum = of.first ? 0 : totals[blockIdx.x];
  for (int k = 0; k < of.count; ++k) sum += shared[k];
  totals[blockIdx.x] = sum;
}

// The launch's only block computes the tree sum; overwrites the totals.
__device__ inline double tree_sum_of(std::int64_t pieces, double* totals) {
  for (std::int64_t apart = 1; apart < pieces; apart *= 2) {
    for (std::int64_t i = threadIdx.x * 2 * apart; i < pieces; i += norm_threads * 2 * apart)
      totals[i] += totals[i + apart];
    __syncthreads();
  }
  return totals[0];
}

__global__ void norm_part_kernel(std::int64_t pieces, double* totals, double* result) {
  const double sum = tree_sum_of(pieces, totals);
  if (threadIdx.x == 0) *result = sum;
}

__global__ void clip_kernel(std::int64_t pieces, double* totals, double limit, double loss_scale,
                            double* result) {
  const double sum = tree_sum_of(pieces, totals);
  if (threadIdx.x != 0) return;
  const double norm = std::sqrt(sum) / loss_scale;
  result[0] = norm;
  result[1] = limit > 0 && norm > limit ? limit / norm : 1;
}

template <class T>
void square_sums(std::int64_t count, const T* x, std::int64_t pieces, std::int64_t piece, double* sums,
                 void* stream) {
  const std::int64_t unit = std::max(least_square_chunk, blocks_for(piece, most_square_chunks));
  const std::int64_t chunk = blocks_for(unit, pack_size<T>) * pack_size<T>;
  const std::int64_t chunks = blocks_for(piece, chunk);
  double* const partial = chunks == 1 ? sums : scratch_for<double>(stream, pieces * chunks, "square_sum");
  if (chunks > 0) {
    const bool aligned = is_aligned(x) && (pieces == 1 || piece % pack_size<T> == 0);
    launch(square_partial_kernel<T>, "square_sum", {{pieces * chunks}, norm_threads}, stream, count, piece,
           chunks, chunk, x, partial, aligned);
  }
  if (chunks == 1) return;
  launch(square_total_kernel, "square_sum", {{pieces}, norm_threads}, stream, chunks, partial, sums);
}

inline void add_pieces(std::span<const double* const> sums, std::int64_t pieces, double* totals,
                       const char* user, void* stream) {
  for (std::size_t begin = 0; begin < sums.size(); begin += sums_per_launch) {
    const std::size_t end = std::min<std::size_t>(sums.size(), begin + sums_per_launch);
    SumAddresses of{};
    std::copy(sums.begin() + static_cast<std::ptrdiff_t>(begin),
              sums.begin() + static_cast<std::ptrdiff_t>(end), of.sums);
    of.count = static_cast<int>(end - begin);
    of.first = begin == 0;
    launch(piece_totals_kernel, user, {{pieces}, sums_per_launch}, stream, of, totals);
  }
}

void add_pieces(std::span<const double* const> sums, std::int64_t pieces, double* totals, void* stream) {
  add_pieces(sums, pieces, totals, "norm_part", stream);
}

// Adds up the totals of the pieces: into `result`, or into scratch if there are several pieces.
inline double* piece_totals(std::span<const double* const> sums, std::int64_t pieces, double* result,
                            const char* user, void* stream) {
  double* const totals = pieces == 1 ? result : scratch_for<double>(stream, pieces, user);
  add_pieces(sums, pieces, totals, user, stream);
  return totals;
}

void norm_part(std::span<const double* const> sums, std::int64_t pieces, double* result, void* stream) {
  double* const totals = piece_totals(sums, pieces, result, "norm_part", stream);
  if (pieces == 1) return;
  launch(norm_part_kernel, "norm_part", {{}, norm_threads}, stream, pieces, totals, result);
}

void clip(std::span<const double* const> sums, std::int64_t pieces, double limit, double* result,
          void* stream, double loss_scale) {
  double* const totals = piece_totals(sums, pieces, result, "clip", stream);
  launch(clip_kernel, "clip", {{}, norm_threads}, stream, pieces, totals, limit, loss_scale, result);
}

template void square_sums(std::int64_t, const float*, std::int64_t, std::int64_t, double*, void*);
template void square_sums(std::int64_t, const Bfloat16*, std::int64_t, std::int64_t, double*, void*);
template void square_sums(std::int64_t, const Float16*, std::int64_t, std::int64_t, double*, void*);

STOWAGE_CUDA_KERNEL(square_partial_kernel<float>);
STOWAGE_CUDA_KERNEL(square_partial_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(square_partial_kernel<Float16>);
STOWAGE_CUDA_KERNEL(square_total_kernel);
STOWAGE_CUDA_KERNEL(piece_totals_kernel);
STOWAGE_CUDA_KERNEL(norm_part_kernel);
STOWAGE_CUDA_KERNEL(clip_kernel);

}  // namespace stowage::cuda
