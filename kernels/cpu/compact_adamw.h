// AdamW with moments in fewer bytes. Tile by tile, of undo_tile elements, the moments become f32, are updated
// with the weights as kernels/math/adamw.h says, and are rounded again. The bits depend neither on the number
// of threads nor on the instruction set.
//
// An update may be made before the norm is known and be undone, by the calls of speculative_adamw.h and under
// their contract, but the record holds the tiles' old values (value_record_bytes in undo_record.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/compact_moments.h"
#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/storage.h"

namespace stowage::cpu {

// Weights: AdamWOperands<float> or SplitOperands, updated in place; their own moments are ignored. Moments:
// Bf16Moments or EightBitMoments.
template <class Weights, class Moments>
struct CompactAdamWOperands {
  Weights weights;
  Moments moments;
};

// Bytes that a record holds of each master weight whose parameter has type T.
template <class T>
inline constexpr std::int64_t saved_weight_bytes = is_narrow<T>
                                                       ? sizeof(T) + sizeof(typename SplitOperands<T>::Low)
                                                       : sizeof(T);

template <class Weights, class Moments>
void adamw(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
           const CompactAdamWOperands<Weights, Moments>& operands);

template <class Weights, class Moments>
std::int64_t adamw_speculate(const AdamWSettings& settings, double scale, std::int64_t count,
                             const CompactAdamWOperands<Weights, Moments>& operands, std::byte* record);
template <class Weights, class Moments>
void adamw_finish(const AdamWSettings& settings, double scale, double true_scale, std::int64_t count,
                  const CompactAdamWOperands<Weights, Moments>& operands, const std::byte* record);
template <class Weights, class Moments>
void adamw_undo(std::int64_t count, const CompactAdamWOperands<Weights, Moments>& operands,
                const std::byte* record);
// Writes the record of an update that was not speculated.
template <class Weights, class Moments>
void not_speculated(std::int64_t count, const CompactAdamWOperands<Weights, Moments>&, std::byte* record);

}  // namespace stowage::cpu
