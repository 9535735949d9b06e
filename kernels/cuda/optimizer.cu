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

// Elements of a chunk, of an array's piece of so many elements: a multiple of the pack's size.
template <class T>
constexpr std::int64_t square_chunk(std::int64_t piece) {
  const std::int64_t unit = std::max(least_square_chunk, blocks_for(piece, most_square_chunks));
  return blocks_for(unit, pack_size<T>) * pack_size<T>;
}

// The block sums the squares of x's elements [first, last). `aligned`: whether x + first is.
template <class T>
__device__ inline double chunk_square_sum(const T* x, std::int64_t first, std::int64_t last, bool aligned,
                                          double* shared) {
  double sum = 0;
  for (std::int64_t i = first + static_cast<std::int64_t>(threadIdx.x) * pack_size<T>; i < last;
       i += static_cast<std::int64_t>(norm_threads) * pack_size<T>) {
    for (const float value : load_pack(x + i, last - i, aligned).values) {
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  return reduce_block<Sum>(sum, shared);
}

// The block adds up the sums of an array's chunks, which other blocks may have written.
__device__ inline double total_of_chunks(std::int64_t chunks, const volatile double* partial,
                                         double* shared) {
  double mine = 0;
  for (std::int64_t i = threadIdx.x; i < chunks; i += norm_threads) mine += partial[i];
  return reduce_block<Sum>(mine, shared);
}

// A block sums a chunk of a piece; every piece has `chunks` chunks. The block that finishes last adds up the
// chunks of each piece: `finished` counts those that have, and is 0 before and behind the launch. With one
// chunk a piece, `partial` is `sums`. `aligned`: whether every piece's start is.
template <class T>
__global__ void square_sum_kernel(std::int64_t count, std::int64_t piece, std::int64_t chunks,
                                  std::int64_t chunk, const T* x, double* partial, double* sums,
                                  unsigned* finished, bool aligned) {
  __shared__ double shared[norm_threads / warp_size];
  __shared__ bool is_last;
  const std::int64_t start = blockIdx.x / chunks * piece;
  const std::int64_t end = start + piece < count ? start + piece : count;
  const std::int64_t first = start + blockIdx.x % chunks * chunk;
  const std::int64_t last = first + chunk < end ? first + chunk : end;
  const double sum = chunk_square_sum(x, first, last, aligned, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
  if (chunks == 1) return;
  if (threadIdx.x == 0) {
    __threadfence();  // the sum is seen by whoever sees the count
    is_last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (std::int64_t p = 0; p < gridDim.x / chunks; ++p) {
    const double total = total_of_chunks(chunks, partial + p * chunks, shared);
    if (threadIdx.x == 0) sums[p] = total;
  }
}

// Arrays that one launch sums: as many as a kernel's parameters hold.
inline constexpr int arrays_per_launch = 64;
template <class T>
struct SummedArrays {
  struct Array {
    const T* x;
    std::int64_t count, chunk;
    double* sum;
    bool aligned;
  } arrays[arrays_per_launch];
};

// A block sums an array, with the bits of square_sum_kernel.
template <class T>
__global__ void square_sums_kernel(const __grid_constant__ SummedArrays<T> all) {
  __shared__ double shared[norm_threads / warp_size];
  __shared__ double partial[most_square_chunks];
  const auto& of = all.arrays[blockIdx.x];
  std::int64_t chunks = 0;
  for (std::int64_t first = 0; first < of.count; first += of.chunk, ++chunks) {
    const std::int64_t last = first + of.chunk < of.count ? first + of.chunk : of.count;
    const double sum = chunk_square_sum(of.x, first, last, of.aligned, shared);
    if (threadIdx.x == 0) partial[chunks] = sum;
  }
  __syncthreads();
  const double total = chunks == 1 ? partial[0] : total_of_chunks(chunks, partial, shared);
  if (threadIdx.x == 0) *of.sum = total;
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
void square_sum(std::int64_t count, const T* x, std::int64_t pieces, std::int64_t piece, double* sums,
                void* stream) {
  const std::int64_t chunk = square_chunk<T>(piece);
  const std::int64_t chunks = std::max<std::int64_t>(1, blocks_for(piece, chunk));
  double* const partial = chunks == 1 ? sums : scratch_for<double>(stream, pieces * chunks, "square_sum");
  unsigned* const finished = chunks == 1 ? nullptr : finished_blocks(stream, "square_sum");
  const bool aligned = is_aligned(x) && (pieces == 1 || piece % pack_size<T> == 0);
  launch(square_sum_kernel<T>, "square_sum", {{pieces * chunks}, norm_threads}, stream, count, piece, chunks,
         chunk, x, partial, sums, finished, aligned);
}

template <class T>
void square_sums(std::span<const SummedArray<T>> arrays, void* stream) {
  for (std::size_t begin = 0; begin < arrays.size(); begin += arrays_per_launch) {
    const auto some = arrays.subspan(begin, std::min<std::size_t>(arrays_per_launch, arrays.size() - begin));
    SummedArrays<T> all{};
    std::transform(some.begin(), some.end(), all.arrays, [](const SummedArray<T>& of) {
      return typename SummedArrays<T>::Array{of.x, of.count, square_chunk<T>(of.count), of.sum,
                                             is_aligned(of.x)};
    });
    launch(square_sums_kernel<T>, "square_sums", {{static_cast<std::int64_t>(some.size())}, norm_threads},
           stream, all);
  }
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

template void square_sum(std::int64_t, const float*, std::int64_t, std::int64_t, double*, void*);
template void square_sum(std::int64_t, const Bfloat16*, std::int64_t, std::int64_t, double*, void*);
template void square_sum(std::int64_t, const Float16*, std::int64_t, std::int64_t, double*, void*);
template void square_sums(std::span<const SummedArray<float>>, void*);
template void square_sums(std::span<const SummedArray<Bfloat16>>, void*);
template void square_sums(std::span<const SummedArray<Float16>>, void*);

STOWAGE_CUDA_KERNEL(square_sum_kernel<float>);
STOWAGE_CUDA_KERNEL(square_sum_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(square_sum_kernel<Float16>);
STOWAGE_CUDA_KERNEL(square_sums_kernel<float>);
STOWAGE_CUDA_KERNEL(square_sums_kernel<Bfloat16>);
STOWAGE_CUDA_KERNEL(square_sums_kernel<Float16>);
STOWAGE_CUDA_KERNEL(piece_totals_kernel);
STOWAGE_CUDA_KERNEL(norm_part_kernel);
STOWAGE_CUDA_KERNEL(clip_kernel);

}  // namespace stowage::cuda
