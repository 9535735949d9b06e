#include "kernels/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <string>

#include "kernels/cpu/one_row.h"
#include "src/base/parallel_for.h"
#include "stowage/error.h"

// A function of the OpenMP runtime that Debian's oneDNN brings; sets the calling thread's own limit.
extern "C" void omp_set_num_threads(int threads);

// oneDNN's library has this function beside dnnl_sgemm, but its headers do not declare it. Its matmul
// primitive would compute the same, but must be made anew for each shape and pair of strides.
extern "C" dnnl_status_t dnnl_gemm_bf16bf16f32(char a_transposed, char b_transposed, dnnl_dim_t m,
                                               dnnl_dim_t n, dnnl_dim_t k, float scale, const void* a,
                                               dnnl_dim_t a_stride, const void* b, dnnl_dim_t b_stride,
                                               float add, float* c, dnnl_dim_t c_stride);

namespace stowage::cpu {
namespace {

struct Tile {
  std::int64_t rows, columns;
};

// Limits of a tile: none is larger than `most`. If there are too few tiles to share among threads, tiles are
// cut down to `least_rows`.
struct TileLimits {
  Tile most;
  std::int64_t least_rows;
};

// Limits for f32: a core's second-level cache holds a tile with its operands. oneDNN's own blocks are 8 x 48.
constexpr TileLimits wide_limits{{256, 384}, 96};
// Limits for native products: a tile's f32 sums are on the stack, 192 KiB.
constexpr TileLimits native_limits{{128, 384}, 64};
// Limits for widened products: sums and widened operands of `widened_run` products for each sum are on the
// stack, 72 KiB + 144 KiB.
constexpr TileLimits widened_limits{{96, 192}, 64};
constexpr std::int64_t widened_run = 128;

std::int64_t pieces(std::int64_t whole, std::int64_t piece) { return (whole + piece - 1) / piece; }

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return pieces(value, multiple) * multiple;
}

// Returns the size of even tiles.
Tile tile_of(std::int64_t m, std::int64_t n, const TileLimits& limits) {
  constexpr std::int64_t enough_tiles = 8;
  const std::int64_t across = pieces(n, limits.most.columns);
  std::int64_t down = pieces(m, limits.most.rows);
  while (down * across < enough_tiles && pieces(m, down) > limits.least_rows) down *= 2;
  return {rounded_up(pieces(m, down), 8), rounded_up(pieces(n, across), 48)};
}

// Length of a run of products. Sums along the tokens (weight gradients) are taken run by run: a longer run of
// a transposed matrix would span more pages than the core's TLB holds.
constexpr std::int64_t run = 512;

// Returns the part with products [first, first + length) of each sum.
template <class T, class Out>
Product<T, Out> run_of(const Product<T, Out>& whole, std::int64_t first, std::int64_t length) {
  Product<T, Out> part = whole;
  part.k = std::min(length, whole.k - first);
  part.a.data += first * (whole.a.transposed ? whole.a.stride : 1);
  part.b.data += first * (whole.b.transposed ? 1 : whole.b.stride);
  return part;
}

template <class T, class Out>
void multiply_in_runs(const Product<T, Out>& product, bool add) {
  if (!product.a.transposed) return multiply_here(product, Out{1}, add);
  for (std::int64_t first = 0; first == 0 || first < product.k; first += run)
    multiply_here(run_of(product, first, run), Out{1}, add || first > 0);
}

void hold_openmp_to_one_thread() {
  thread_local const bool held = (omp_set_num_threads(1), true);
  static_cast<void>(held);
}

template <class T>
void add_bias(Sum<T>* c, std::int64_t stride, std::int64_t rows, std::int64_t columns, const T* bias) {
  for (std::int64_t row = 0; row < rows; ++row) {
    Sum<T>* line = c + row * stride;
#pragma omp simd
    for (std::int64_t column = 0; column < columns; ++column) line[column] += wide(bias[column]);
  }
}

// Returns the part of the product that makes C's tile at (row, column).
template <class T, class Out>
Product<T, Out> part(const Product<T, Out>& whole, std::int64_t row, std::int64_t column, const Tile& tile) {
  Product<T, Out> result = whole;
  result.m = std::min(tile.rows, whole.m - row);
  result.n = std::min(tile.columns, whole.n - column);
  result.a.data += whole.a.transposed ? row : row * whole.a.stride;
  result.b.data += whole.b.transposed ? column * whole.b.stride : column;
  result.c += row * whole.c_stride + column;
  return result;
}

template <class T>
void call_one_dnn(const Product<T, float>& product, float scale, bool add, auto* function) {
  hold_openmp_to_one_thread();
  const dnnl_status_t status =
      function(product.a.transposed ? 'T' : 'N', product.b.transposed ? 'T' : 'N', product.m, product.n,
               product.k, scale, product.a.data, product.a.stride, product.b.data, product.b.stride,
               add ? 1.0F : 0.0F, product.c, product.c_stride);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success) {
    throw Error("oneDNN refused a matrix product of " + std::to_string(product.m) + " x " +
                std::to_string(product.n) + " x " + std::to_string(product.k) + " with status " +
                std::to_string(status) + "; check the operands' shapes");
  }
}

// Widens a matrix that is stored as `rows` rows of `columns` elements.
template <Narrow T>
void widen_rows(const Matrix<T>& from, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t row = 0; row < rows; ++row)
    widen(columns, from.data + row * from.stride, to + row * columns);
}

// Widens the operands of at most one tile and one run, as stored, side by side into `buffer`.
template <Narrow T>
Product<float> widened(const Product<T, float>& narrow, float* buffer) {
  const auto [m, n, k, a, b, c, c_stride] = narrow;
  const std::int64_t a_columns = a.transposed ? m : k;
  const std::int64_t b_columns = b.transposed ? k : n;
  float* const second = buffer + m * k;
  widen_rows(a, a.transposed ? k : m, a_columns, buffer);
  widen_rows(b, b.transposed ? n : k, b_columns, second);
  return {m, n, k, {buffer, a_columns, a.transposed}, {second, b_columns, b.transposed}, c, c_stride};
}

template <Narrow T>
void multiply_widened(const Product<T, float>& product, float scale, bool add) {
  const Tile tile = widened_limits.most;
  alignas(64) float buffer[(widened_limits.most.rows + widened_limits.most.columns) * widened_run];
  for (std::int64_t row = 0; row < product.m; row += tile.rows)
    for (std::int64_t column = 0; column < product.n; column += tile.columns)
      for (std::int64_t first = 0; first == 0 || first < product.k; first += widened_run) {
        const auto here = run_of(part(product, row, column, tile), first, widened_run);
        multiply_here(widened(here, buffer), scale, add || first > 0);
      }
}

bool has_native_products() {
  const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

std::atomic<NarrowProducts>& chosen_products() {
  static std::atomic<NarrowProducts> chosen =
      has_native_products() ? NarrowProducts::native : NarrowProducts::widened;
  return chosen;
}

template <class T>
const TileLimits& limits_of() {
  if (!is_narrow<T>) return wide_limits;
  const bool native = std::is_same_v<T, Bfloat16> && narrow_products() == NarrowProducts::native;
  return native ? native_limits : widened_limits;
}

// Computes a tile whose elements have the sums' type: the tile itself takes the sums.
template <class T>
void make_tile(const Product<T, Sum<T>>& tile, const T* bias, bool add) {
  multiply_in_runs(tile, add);
  if (bias != nullptr) add_bias(tile.c, tile.c_stride, tile.m, tile.n, bias);
}

// Computes a tile of C: sums in f32, then rounds.
template <Narrow T>
void make_tile(const Product<T>& tile, const T* bias, bool add) {
  alignas(64) float sums[native_limits.most.rows * native_limits.most.columns];
  const std::int64_t stride = rounded_up(tile.n, 16);
  for (std::int64_t row = 0; add && row < tile.m; ++row)
    widen(tile.n, tile.c + row * tile.c_stride, sums + row * stride);
  make_tile<T>(Product<T, float>{tile.m, tile.n, tile.k, tile.a, tile.b, sums, stride}, bias, add);
  for (std::int64_t row = 0; row < tile.m; ++row)
    narrow(tile.n, sums + row * stride, tile.c + row * tile.c_stride);
}

}  // namespace

NarrowProducts narrow_products() { return chosen_products(); }

void set_narrow_products(NarrowProducts products) {
  if (products == NarrowProducts::native && !has_native_products())
    throw InvalidInput("this CPU has no products of bf16 (AVX-512 BF16 or AMX); use NarrowProducts::widened");
  chosen_products() = products;
}

template <>
void multiply_here(const Product<float>& product, float scale, bool add) {
  call_one_dnn(product, scale, add, dnnl_sgemm);
}

template <>
void multiply_here(const Product<Bfloat16, float>& product, float scale, bool add) {
  if (narrow_products() == NarrowProducts::native)
    return call_one_dnn(product, scale, add, dnnl_gemm_bf16bf16f32);
  multiply_widened(product, scale, add);
}

template <>
void multiply_here(const Product<Float16, float>& product, float scale, bool add) {
  multiply_widened(product, scale, add);
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

template <class T, class Out>
void multiply(const Product<T, Out>& product, const T* bias, bool add) {
  if constexpr (is_narrow<T>) {
    if (is_one_narrow_row(product, add)) return multiply_one_row(product, bias);
  }
  const Tile tile = tile_of(product.m, product.n, limits_of<T>());
  const std::int64_t across = pieces(product.n, tile.columns);
  parallel_for(across * pieces(product.m, tile.rows), 1, [&](std::int64_t index, std::int64_t) {
    const std::int64_t column = index % across * tile.columns;
    const Product<T, Out> here = part(product, index / across * tile.rows, column, tile);
    make_tile(here, bias == nullptr ? nullptr : bias + column, add);
  });
}

template void multiply(const Product<float>&, const float*, bool);
template void multiply(const Product<double>&, const double*, bool);
template void multiply(const Product<Bfloat16>&, const Bfloat16*, bool);
template void multiply(const Product<Bfloat16, float>&, const Bfloat16*, bool);
template void multiply(const Product<Float16>&, const Float16*, bool);
template void multiply(const Product<Float16, float>&, const Float16*, bool);

}  // namespace stowage::cpu
