#include "kernels/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <string>

#include "src/base/parallel_for.h"
#include "stowage/error.h"

// Of the OpenMP runtime that Debian's oneDNN brings: sets the calling thread's own limit.
extern "C" void omp_set_num_threads(int threads);

namespace stowage::cpu {
namespace {

struct Tile {
  std::int64_t rows, columns;
};

std::int64_t pieces(std::int64_t whole, std::int64_t piece) { return (whole + piece - 1) / piece; }

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return pieces(value, multiple) * multiple;
}

// Even tiles of at most 256 x 384, which a core's second-level cache holds with what they are made
// from; fewer rows where there would be too few tiles to share. oneDNN's own blocks are 8 x 48.
Tile tile_of(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t most_rows = 256, least_rows = 96, most_columns = 384, enough_tiles = 8;
  const std::int64_t across = pieces(n, most_columns);
  std::int64_t down = pieces(m, most_rows);
  while (down * across < enough_tiles && pieces(m, down) > least_rows) down *= 2;
  return {rounded_up(pieces(m, down), 8), rounded_up(pieces(n, across), 48)};
}

// Sums along the tokens (weight gradients) are taken in runs of this length, one after another: a
// longer run of a transposed matrix spans more pages than the core has at hand.
constexpr std::int64_t run = 512;

template <class T>
void multiply_in_runs(const Product<T>& product, bool add) {
  for (std::int64_t first = 0; first == 0 || first < product.k; first += run) {
    Product<T> part = product;
    part.k = std::min(run, product.k - first);
    part.a.data += first * product.a.stride;
    part.b.data += first * (product.b.transposed ? 1 : product.b.stride);
    multiply_here<T>(part, T{1}, add || first > 0);
  }
}

void hold_openmp_to_one_thread() {
  thread_local const bool held = (omp_set_num_threads(1), true);
  static_cast<void>(held);
}

template <class T>
void add_bias(T* c, std::int64_t stride, std::int64_t rows, std::int64_t columns, const T* bias) {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* line = c + row * stride;
#pragma omp simd
    for (std::int64_t column = 0; column < columns; ++column) line[column] += bias[column];
  }
}

// The part of the product that makes C's rows and columns from (row, column) on.
template <class T>
Product<T> part(const Product<T>& whole, std::int64_t row, std::int64_t column, const Tile& tile) {
  Product<T> result = whole;
  result.m = std::min(tile.rows, whole.m - row);
  result.n = std::min(tile.columns, whole.n - column);
  result.a.data += whole.a.transposed ? row : row * whole.a.stride;
  result.b.data += whole.b.transposed ? column * whole.b.stride : column;
  result.c += row * whole.c_stride + column;
  return result;
}

}  // namespace

template <>
void multiply_here(const Product<float>& product, float scale, bool add) {
  hold_openmp_to_one_thread();
  const dnnl_status_t status =
      dnnl_sgemm(product.a.transposed ? 'T' : 'N', product.b.transposed ? 'T' : 'N', product.m, product.n,
                 product.k, scale, product.a.data, product.a.stride, product.b.data, product.b.stride,
                 add ? 1.0F : 0.0F, product.c, product.c_stride);
  if (status != dnnl_success) {
    throw Error("oneDNN refused a matrix product of " + std::to_string(product.m) + " x " +
                std::to_string(product.n) + " x " + std::to_string(product.k) + " with status " +
                std::to_string(status) + "; check the operands' shapes");
  }
}

template <>
void multiply_here(const Product<double>& product, double scale, bool add) {
  const auto [m, n, k, a, b, c, c_stride] = product;
  const std::int64_t a_row = a.transposed ? 1 : a.stride;
  const std::int64_t a_step = a.transposed ? a.stride : 1;
  const std::int64_t b_column = b.transposed ? b.stride : 1;
  const std::int64_t b_step = b.transposed ? 1 : b.stride;
  for (std::int64_t row = 0; row < m; ++row) {
    double* line = c + row * c_stride;
    if (!add) std::fill(line, line + n, 0.0);
    for (std::int64_t step = 0; step < k; ++step) {
      const double factor = scale * a.data[row * a_row + step * a_step];
      const double* from = b.data + step * b_step;
      for (std::int64_t column = 0; column < n; ++column) line[column] += factor * from[column * b_column];
    }
  }
}

template <class T>
void multiply(const Product<T>& product, const T* bias, bool add) {
  const Tile tile = tile_of(product.m, product.n);
  const std::int64_t across = pieces(product.n, tile.columns);
  parallel_for(across * pieces(product.m, tile.rows), 1, [&](std::int64_t index, std::int64_t) {
    const std::int64_t column = index % across * tile.columns;
    const Product<T> here = part(product, index / across * tile.rows, column, tile);
    if (here.a.transposed) {
      multiply_in_runs(here, add);
    } else {
      multiply_here<T>(here, T{1}, add);
    }
    if (bias != nullptr) add_bias(here.c, here.c_stride, here.m, here.n, bias + column);
  });
}

template void multiply(const Product<float>&, const float*, bool);
template void multiply(const Product<double>&, const double*, bool);

}  // namespace stowage::cpu
