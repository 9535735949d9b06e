#include "kernels/cpu/storage.h"

#include "kernels/cpu/clones.h"

namespace stowage::cpu {

STOWAGE_CLONES void widen(std::int64_t count, const Bfloat16* x, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = std::bit_cast<float>(static_cast<std::uint32_t>(x[i].bits) << 16U);
}

// Rounds as Bfloat16 does, with a selection in place of its branch.
STOWAGE_CLONES void narrow(std::int64_t count, const float* x, Bfloat16* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const auto all = std::bit_cast<std::uint32_t>(x[i]);
    const std::uint32_t nearest = (all + 0x7fffU + ((all >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet = (all >> 16U) | 0x40U;
    y[i].bits = static_cast<std::uint16_t>((all & 0x7fffffffU) > 0x7f800000U ? quiet : nearest);
  }
}

STOWAGE_CLONES void widen(std::int64_t count, const Float16* x, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(x[i]);
}

STOWAGE_CLONES void narrow(std::int64_t count, const float* x, Float16* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i].bits = Float16(x[i]).bits;
}

}  // namespace stowage::cpu
