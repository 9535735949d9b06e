#include "kernels/cpu/compact_adamw.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "include/stowage/error.h"
#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/undo_record.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t header = 64;  // bytes of a tile's header in a record

bool in_place(const AdamWOperands<float>& of) { return of.parameter == of.new_parameter; }
template <class T>
bool in_place(const SplitOperands<T>& of) {
  return of.parameter == of.new_parameter && of.low == of.new_low;
}

template <class Weights>
void require_in_place(const Weights& weights) {
  if (!in_place(weights))
    throw InvalidInput(
        "an update of bf16 or 8-bit moments is made in place: give it outputs that are its inputs");
}

// Returns the weights from element `begin` on, with the tile's moments.
AdamWOperands<float> with_moments(const AdamWOperands<float>& of, std::int64_t begin, MomentTile& tile) {
  return {of.parameter + begin,     of.gradient + begin, tile.first, tile.second,
          of.new_parameter + begin, tile.first,          tile.second};
}
template <class T>
SplitOperands<T> with_moments(const SplitOperands<T>& of, std::int64_t begin, MomentTile& tile) {
  return {of.parameter + begin,     of.gradient + begin, of.low + begin, tile.first, tile.second,
          of.new_parameter + begin, of.new_low + begin,  tile.first,     tile.second};
}

std::byte* save(const AdamWOperands<float>& from, std::int64_t begin, std::int64_t count, std::byte* to) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  std::memcpy(to, from.parameter + begin, bytes);
  return to + bytes;
}
template <class T>
std::byte* save(const SplitOperands<T>& from, std::int64_t begin, std::int64_t count, std::byte* to) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T),
                    low_bytes = static_cast<std::size_t>(count) * sizeof(*from.low);
  std::memcpy(to, from.parameter + begin, bytes);
  std::memcpy(to + bytes, from.low + begin, low_bytes);
  return to + bytes + low_bytes;
}
const std::byte* restore(const AdamWOperands<float>& to, std::int64_t begin, std::int64_t count,
                         const std::byte* from) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  std::memcpy(to.new_parameter + begin, from, bytes);
  return from + bytes;
}
template <class T>
const std::byte* restore(const SplitOperands<T>& to, std::int64_t begin, std::int64_t count,
                         const std::byte* from) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T),
                    low_bytes = static_cast<std::size_t>(count) * sizeof(*to.new_low);
  std::memcpy(static_cast<void*>(to.new_parameter + begin), from, bytes);
  std::memcpy(to.new_low + begin, from + bytes, low_bytes);
  return from + bytes + low_bytes;
}

template <class T>
constexpr std::int64_t saved_bytes(const AdamWOperands<T>&) {
  return saved_weight_bytes<T>;
}
template <class T>
constexpr std::int64_t saved_bytes(const SplitOperands<T>&) {
  return saved_weight_bytes<T>;
}
template <class Moments>
constexpr std::int64_t moment_bytes = std::is_same_v<Moments, EightBitMoments> ? 1 : 2;

// Returns the tile's piece of the record. Requires that all tiles before it are whole.
template <class Weights, class Moments, class Byte>
Byte* at_element(std::int64_t begin, const CompactAdamWOperands<Weights, Moments>& of, Byte* record) {
  return record + value_record_bytes(begin, moment_bytes<Moments>, saved_bytes(of.weights));
}

template <class Operands>
void update_tile(const AdamWConstants<float>& constants, std::int64_t begin, std::int64_t count,
                 const Operands& of) {
  MomentTile tile;
  decode(of.moments, begin, count, tile);
  update_elements(constants, count, with_moments(of.weights, begin, tile));
  encode(tile, begin, count, of.moments);
}

template <class Operands>
void take_tile_back(std::int64_t begin, std::int64_t count, const Operands& of, const std::byte* record) {
  restore(of.moments, begin, count, restore(of.weights, begin, count, record + header));
}

template <class Operands>
bool speculate_tile(const AdamWConstants<float>& constants, std::int64_t begin, std::int64_t count,
                    const Operands& of, std::byte* record) {
  save(of.moments, begin, count, save(of.weights, begin, count, record + header));
  MomentTile tile;
  decode(of.moments, begin, count, tile);
  update_elements(constants, count, with_moments(of.weights, begin, tile));
  if (!is_finite(tile, count)) {
    restore(of.weights, begin, count, record + header);
    write_untouched(record);
    return false;
  }
  encode(tile, begin, count, of.moments);
  write_updated(record);
  return true;
}

}  // namespace

template <class Weights, class Moments>
void adamw(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
           const CompactAdamWOperands<Weights, Moments>& operands) {
  require_in_place(operands.weights);
  const AdamWConstants<float> constants(settings, gradient_scale);
  for_each_tile(
      count, [&](std::int64_t begin, std::int64_t size) { update_tile(constants, begin, size, operands); });
}

template <class Weights, class Moments>
std::int64_t adamw_speculate(const AdamWSettings& settings, double scale, std::int64_t count,
                             const CompactAdamWOperands<Weights, Moments>& operands, std::byte* record) {
  require_in_place(operands.weights);
  const AdamWConstants<float> constants(settings, scale);
  std::atomic<std::int64_t> updated = 0;
  for_each_tile(count, [&](std::int64_t begin, std::int64_t size) {
    if (speculate_tile(constants, begin, size, operands, at_element(begin, operands, record)))
      updated += size;
  });
  return updated;
}

template <class Weights, class Moments>
void adamw_finish(const AdamWSettings& settings, double scale, double true_scale, std::int64_t count,
                  const CompactAdamWOperands<Weights, Moments>& operands, const std::byte* record) {
  require_in_place(operands.weights);
  const AdamWConstants<float> right(settings, true_scale);
  for_each_tile(count, [&](std::int64_t begin, std::int64_t size) {
    const std::byte* tile = at_element(begin, operands, record);
    if (was_updated(tile)) {
      if (true_scale == scale) return;
      take_tile_back(begin, size, operands, tile);
    }
    update_tile(right, begin, size, operands);
  });
}

template <class Weights, class Moments>
void adamw_undo(std::int64_t count, const CompactAdamWOperands<Weights, Moments>& operands,
                const std::byte* record) {
  require_in_place(operands.weights);
  for_each_tile(count, [&](std::int64_t begin, std::int64_t size) {
    const std::byte* tile = at_element(begin, operands, record);
    if (was_updated(tile)) take_tile_back(begin, size, operands, tile);
  });
}

template <class Weights, class Moments>
void not_speculated(std::int64_t count, const CompactAdamWOperands<Weights, Moments>& operands,
                    std::byte* record) {
  for (std::int64_t begin = 0; begin < count; begin += undo_tile)
    write_untouched(at_element(begin, operands, record));
}

#define STOWAGE_COMPACT_ADAMW(Weights, Moments)                                                            \
  template void adamw(const AdamWSettings&, double, std::int64_t,                                          \
                      const CompactAdamWOperands<Weights, Moments>&);                                      \
  template std::int64_t adamw_speculate(const AdamWSettings&, double, std::int64_t,                        \
                                        const CompactAdamWOperands<Weights, Moments>&, std::byte*);        \
  template void adamw_finish(const AdamWSettings&, double, double, std::int64_t,                           \
                             const CompactAdamWOperands<Weights, Moments>&, const std::byte*);             \
  template void adamw_undo(std::int64_t, const CompactAdamWOperands<Weights, Moments>&, const std::byte*); \
  template void not_speculated(std::int64_t, const CompactAdamWOperands<Weights, Moments>&, std::byte*)
STOWAGE_COMPACT_ADAMW(AdamWOperands<float>, Bf16Moments);
STOWAGE_COMPACT_ADAMW(AdamWOperands<float>, EightBitMoments);
STOWAGE_COMPACT_ADAMW(SplitAdamWOperands, Bf16Moments);
STOWAGE_COMPACT_ADAMW(SplitAdamWOperands, EightBitMoments);
STOWAGE_COMPACT_ADAMW(HalfAdamWOperands, Bf16Moments);
STOWAGE_COMPACT_ADAMW(HalfAdamWOperands, EightBitMoments);
#undef STOWAGE_COMPACT_ADAMW

}  // namespace stowage::cpu
