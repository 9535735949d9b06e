#include "kernels/cpu/optimizer.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/clones.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t smallest_chunk = 16384;
constexpr std::int64_t most_chunks = 4096;

STOWAGE_HOST_DEVICE double wide(float x) { return static_cast<double>(x); }
STOWAGE_HOST_DEVICE double wide(double x) { return x; }
STOWAGE_HOST_DEVICE double wide(Bfloat16 x) { return static_cast<double>(static_cast<float>(x)); }
STOWAGE_HOST_DEVICE double wide(Float16 x) { return static_cast<double>(static_cast<float>(x)); }

template <class T>
STOWAGE_HOST_DEVICE double square_sum_loop(std::int64_t count, const T* x) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += wide(x[i]) * wide(x[i]);
  return sum;
}

STOWAGE_CLONES double square_sum_range(std::int64_t count, const float* x) {
  return square_sum_loop(count, x);
}
double square_sum_range(std::int64_t count, const double* x) { return square_sum_loop(count, x); }
STOWAGE_CLONES double square_sum_range(std::int64_t count, const Bfloat16* x) {
  return square_sum_loop(count, x);
}
STOWAGE_CLONES double square_sum_range(std::int64_t count, const Float16* x) {
  return square_sum_loop(count, x);
}

double sum_of_piece(std::span<const double* const> sums, std::int64_t piece) {
  double sum = 0;
  for (const double* of : sums) sum += of[piece];
  return sum;
}

double tree_sum_of_pieces(std::span<const double* const> sums, std::int64_t first, std::int64_t pieces) {
  if (pieces == 1) return sum_of_piece(sums, first);
  const std::int64_t half = pieces / 2;
  return tree_sum_of_pieces(sums, first, half) + tree_sum_of_pieces(sums, first + half, half);
}

}  // namespace

template <class T>
double square_sum(std::int64_t count, const T* x) {
  const std::int64_t chunk = std::max(smallest_chunk, (count + most_chunks - 1) / most_chunks);
  std::array<double, most_chunks> parts;
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    parts[static_cast<std::size_t>(begin / chunk)] = square_sum_range(end - begin, x + begin);
  });
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += chunk)
    sum += parts[static_cast<std::size_t>(begin / chunk)];
  return sum;
}

// Small pieces share a chunk; square_sum itself is parallel for a large piece.
template <class T>
void square_sum(std::int64_t count, const T* x, std::int64_t pieces, std::int64_t piece, double* sums) {
  const std::int64_t together = std::max<std::int64_t>(1, smallest_chunk / std::max<std::int64_t>(1, piece));
  parallel_for(pieces, together, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t first = std::min(p * piece, count);
      sums[p] = square_sum(std::min(piece, count - first), x + first);
    }
  });
}

double norm_part(std::span<const double* const> sums, std::int64_t pieces) {
  return tree_sum_of_pieces(sums, 0, pieces);
}

void add_pieces(std::span<const double* const> sums, std::int64_t pieces, double* totals) {
  for (std::int64_t p = 0; p < pieces; ++p) {
    double total = 0;
    for (const double* of : sums) total += of[p];
    totals[p] = total;
  }
}

template double square_sum(std::int64_t, const float*);
template double square_sum(std::int64_t, const double*);
template double square_sum(std::int64_t, const Bfloat16*);
template double square_sum(std::int64_t, const Float16*);
template void square_sum(std::int64_t, const float*, std::int64_t, std::int64_t, double*);
template void square_sum(std::int64_t, const double*, std::int64_t, std::int64_t, double*);
template void square_sum(std::int64_t, const Bfloat16*, std::int64_t, std::int64_t, double*);
template void square_sum(std::int64_t, const Float16*, std::int64_t, std::int64_t, double*);

}  // namespace stowage::cpu
