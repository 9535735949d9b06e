// Gradient norm and AdamW. Stream order. Throws DeviceError, and InvalidInput where the lane's scratch is
// too small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/math/adamw.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "kernels/math/philox.h"

namespace stowage::cuda {

// sums[p], p < pieces: squares of x's elements [p * piece, (p + 1) * piece) below `count`, in f64: chunks
// that depend on `piece` alone into the lane's scratch (one f64 for each, at most 1,024 a piece), then a
// piece's chunks in a fixed order. One launch. T: float, Bfloat16 or Float16.
template <class T>
void square_sum(std::int64_t count, const T* x, std::int64_t pieces, std::int64_t piece, double* sums,
                void* stream);

// Each array's sum, of all its elements, as square_sum makes it: one launch for 64 arrays, in each of which
// one block sums an array.
template <class T>
struct SummedArray {
  const T* x = nullptr;
  std::int64_t count = 0;
  double* sum = nullptr;
};
template <class T>
void square_sums(std::span<const SummedArray<T>> arrays, void* stream);

// result f64{} = sum of all elements of `sums`, arrays f64[pieces] on the device, `pieces` a power of two.
// For each p, elements p are added up in the order of `sums`; then these totals in a balanced tree of
// adjacent pairs. Scratch: an f64 for each piece, if there are several.
void norm_part(std::span<const double* const> sums, std::int64_t pieces, double* result, void* stream);
// totals f64[pieces]: the elements p of `sums`, added up in that order.
void add_pieces(std::span<const double* const> sums, std::int64_t pieces, double* totals, void* stream);

// result f64{2}: norm = sqrt of norm_part's result, over the loss scale; scale = limit > 0 && norm > limit ?
// limit / norm : 1.
void clip(std::span<const double* const> sums, std::int64_t pieces, double limit, double* result,
          void* stream, double loss_scale = 1);

template <class T>
using MasterLow = std::conditional_t<std::is_same_v<T, Float16>, std::int32_t, std::int16_t>;

// AdamW (kernels/math/adamw.h) in f32, with the host's bits; new values may take the old ones' bytes. The
// gradient is multiplied by clip[1] / loss_scale, on the device; if clip[0], the norm, is not finite, the new
// values are the old ones.
template <class T>
struct AdamWOperands {
  std::int64_t count = 0;
  const T* parameter = nullptr;
  const T* gradient = nullptr;
  const float* first_moment = nullptr;
  const float* second_moment = nullptr;
  const double* clip = nullptr;
  const MasterLow<T>* low = nullptr;  // low part of T's master weight; null for float
  T* new_parameter = nullptr;
  float* new_first_moment = nullptr;
  float* new_second_moment = nullptr;
  MasterLow<T>* new_low = nullptr;
  double loss_scale = 1;
};

// Moments in fewer bytes (kernels/math/moment_codes.h), updated in place; those of AdamWOperands are ignored.
struct Bf16Moments {
  Bfloat16 *first, *second;
  RandomStream rounding;
};
struct EightBitMoments {
  std::uint8_t *first, *second;
  float *first_scales, *second_scales;
};

template <class T>
struct WideUpdate {
  AdamWSettings settings;
  AdamWOperands<T> operands;
};
template <class T, class Moments>
struct CompactUpdate {
  AdamWSettings settings;
  AdamWOperands<T> operands;
  Moments moments;
};

// Makes up to most_updates updates by one launch. None writes what another touches.
inline constexpr std::size_t most_updates = 64;
template <class T>
void adamw(std::span<const WideUpdate<T>> updates, void* stream);
template <class T, class Moments>
void adamw(std::span<const CompactUpdate<T, Moments>> updates, void* stream);

}  // namespace stowage::cuda
