#include "kernels/cpu/one_row.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/cpu/clones.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t columns_at_once = 32;  // elements of C that a chunk computes where B is [n, k]
constexpr std::int64_t lanes = 16;            // partial sums of a dot product, added in a tree
constexpr std::int64_t tile_columns = 256;    // elements of C that a chunk computes where B is [k, n]
constexpr std::int64_t rows_at_once = 4;      // rows of such a B that are added together

// Vectors of the compiler, which it cuts to those of the machine.
using Floats [[gnu::vector_size(4 * lanes)]] = float;
using Words [[gnu::vector_size(4 * lanes)]] = std::uint32_t;

// sums += x b, lane by lane, for 2 * lanes elements.
STOWAGE_HOST_DEVICE void add_products(const Floats& x0, const Floats& x1, const float* b, Floats& s0,
                                      Floats& s1) {
  Floats b0, b1;
  std::memcpy(&b0, b, sizeof b0);
  std::memcpy(&b1, b + lanes, sizeof b1);
  s0 += x0 * b0;
  s1 += x1 * b1;
}
// Two elements are one word, so nothing moves from lane to lane: x has been dealt.
STOWAGE_HOST_DEVICE void add_products(const Floats& x0, const Floats& x1, const Bfloat16* b, Floats& s0,
                                      Floats& s1) {
  Words both;
  std::memcpy(&both, b, sizeof both);
  s0 += x0 * (Floats)(both << 16U);
  s1 += x1 * (Floats)(both & 0xffff0000U);
}
STOWAGE_HOST_DEVICE void add_products(const Floats& x0, const Floats& x1, const Float16* b, Floats& s0,
                                      Floats& s1) {
  float values[2 * lanes];
#pragma omp simd
  for (std::int64_t i = 0; i < 2 * lanes; ++i) values[i] = wide(b[i]);
  add_products(x0, x1, values, s0, s1);
}

// Orders x as add_products of bf16 takes it: of each 2 * lanes elements those at even places, then the
// others.
void deal(std::int64_t count, float* x) {
  for (std::int64_t i = 0; i + 2 * lanes <= count; i += 2 * lanes) {
    float dealt[2 * lanes];
    for (std::int64_t k = 0; k < lanes; ++k) {
      dealt[k] = x[i + 2 * k];
      dealt[lanes + k] = x[i + 2 * k + 1];
    }
    std::copy(dealt, dealt + 2 * lanes, x + i);
  }
}

// Returns x . b. Four sums of each lane hide the time of an addition.
template <class T>
STOWAGE_HOST_DEVICE float dot_loop(std::int64_t count, const float* x, const T* b) {
  Floats s0 = {}, s1 = {}, s2 = {}, s3 = {}, x0, x1;
  std::int64_t i = 0;
  const auto next = [&](Floats& sum0, Floats& sum1) {
    std::memcpy(&x0, x + i, sizeof x0);
    std::memcpy(&x1, x + i + lanes, sizeof x1);
    add_products(x0, x1, b + i, sum0, sum1);
    i += 2 * lanes;
  };
  while (i + 4 * lanes <= count) {
    next(s0, s1);
    next(s2, s3);
  }
  if (i + 2 * lanes <= count) next(s0, s1);
  s0 = (s0 + s1) + (s2 + s3);
  float sums[lanes];
  std::memcpy(sums, &s0, sizeof sums);
  for (std::int64_t k = 0; i < count; ++i, k = (k + 1) % lanes) sums[k] += x[i] * wide(b[i]);
  for (std::int64_t distance = lanes / 2; distance > 0; distance /= 2)
    for (std::int64_t k = 0; k < distance; ++k) sums[k] += sums[k + distance];
  return sums[0];
}

// sums[c] += x[0] b[0][c] + … + x[3] b[3][c]
template <class T>
STOWAGE_HOST_DEVICE void add_rows_loop(std::int64_t columns, const float* x, const T* b, std::int64_t stride,
                                       float* sums) {
  const T* const b1 = b + stride;
  const T* const b2 = b1 + stride;
  const T* const b3 = b2 + stride;
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c)
    sums[c] += x[0] * wide(b[c]) + x[1] * wide(b1[c]) + x[2] * wide(b2[c]) + x[3] * wide(b3[c]);
}

STOWAGE_CLONES float dot(std::int64_t count, const float* x, const Bfloat16* b) {
  return dot_loop(count, x, b);
}
STOWAGE_CLONES float dot(std::int64_t count, const float* x, const Float16* b) {
  return dot_loop(count, x, b);
}
STOWAGE_CLONES void add_rows(std::int64_t columns, const float* x, const Bfloat16* b, std::int64_t stride,
                             float* sums) {
  add_rows_loop(columns, x, b, stride, sums);
}
STOWAGE_CLONES void add_rows(std::int64_t columns, const float* x, const Float16* b, std::int64_t stride,
                             float* sums) {
  add_rows_loop(columns, x, b, stride, sums);
}

// Writes sums [first, first + count) of C.
template <class T, class Out>
void finish(const Product<T, Out>& product, const T* bias, std::int64_t first, std::int64_t count,
            float* sums) {
  for (std::int64_t i = 0; bias != nullptr && i < count; ++i) sums[i] += wide(bias[first + i]);
  if constexpr (std::is_same_v<Out, float>)
    std::copy(sums, sums + count, product.c + first);
  else
    narrow(count, sums, product.c + first);
}

// C[first, first + count) of a B that is stored as [n, k].
template <class T, class Out>
void make_dots(const Product<T, Out>& product, const float* x, const T* bias, std::int64_t first,
               std::int64_t count) {
  float sums[columns_at_once];
  for (std::int64_t i = 0; i < count; ++i)
    sums[i] = dot(product.k, x, product.b.data + (first + i) * product.b.stride);
  finish(product, bias, first, count, sums);
}

// C[first, first + count) of a B that is stored as [k, n].
template <class T, class Out>
void make_columns(const Product<T, Out>& product, const float* x, const T* bias, std::int64_t first,
                  std::int64_t count) {
  float sums[tile_columns] = {};
  const T* const b = product.b.data + first;
  std::int64_t row = 0;
  for (; row + rows_at_once <= product.k; row += rows_at_once)
    add_rows(count, x + row, b + row * product.b.stride, product.b.stride, sums);
  for (; row < product.k; ++row) {
    const float one[rows_at_once] = {x[row]};
    add_rows(count, one, b + row * product.b.stride, 0, sums);
  }
  finish(product, bias, first, count, sums);
}

}  // namespace

template <Narrow T, class Out>
void multiply_one_row(const Product<T, Out>& product, const T* bias) {
  std::vector<float> x(static_cast<std::size_t>(product.k));
  widen(product.k, product.a.data, x.data());
  const bool by_dots = product.b.transposed;
  if (by_dots && std::is_same_v<T, Bfloat16>) deal(product.k, x.data());
  const std::int64_t piece = by_dots ? columns_at_once : tile_columns;
  parallel_for(product.n, piece, [&](std::int64_t begin, std::int64_t end) {
    by_dots ? make_dots(product, x.data(), bias, begin, end - begin)
            : make_columns(product, x.data(), bias, begin, end - begin);
  });
}

template void multiply_one_row(const Product<Bfloat16>&, const Bfloat16*);
template void multiply_one_row(const Product<Bfloat16, float>&, const Bfloat16*);
template void multiply_one_row(const Product<Float16>&, const Float16*);
template void multiply_one_row(const Product<Float16, float>&, const Float16*);

}  // namespace stowage::cpu
