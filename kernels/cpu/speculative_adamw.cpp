#include "kernels/cpu/speculative_adamw.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "include/stowage/error.h"
#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/undo_record.h"

namespace stowage::cpu {
namespace {

template <class Operands>
constexpr bool undoable = !std::is_same_v<Operands, AdamWOperands<double>>;

template <class T>
bool in_place(const AdamWOperands<T>& of) {
  return of.parameter == of.new_parameter && of.first_moment == of.new_first_moment &&
         of.second_moment == of.new_second_moment;
}
template <class T>
bool in_place(const SplitOperands<T>& of) {
  return of.parameter == of.new_parameter && of.low == of.new_low && of.first_moment == of.new_first_moment &&
         of.second_moment == of.new_second_moment;
}

template <class Operands>
void require_in_place(const Operands& operands) {
  if (!in_place(operands)) {
    throw InvalidInput("a speculated update is made in place: give it outputs that are its inputs");
  }
}

// Returns the tile's piece of the record. Requires that all tiles before it are whole.
template <class Byte>
Byte* at_element(std::int64_t begin, Byte* record) {
  return record + begin / undo_tile * undo_tile_bytes(undo_tile);
}

template <class Operands>
bool speculate_tile(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
                    std::byte* tile) {
  TileResidues residues;
  residues.soon = tile;
  const bool finite = update_undoably(constants, count, operands, residues);
  if (finite && write_residues(count, residues, tile)) return true;
  take_back(constants, count, operands, residues);
  write_untouched(tile);
  return false;
}

}  // namespace

template <class Operands>
std::int64_t adamw_speculate(const AdamWSettings& settings, double scale, std::int64_t count,
                             const Operands& operands, std::byte* record) {
  require_in_place(operands);
  if constexpr (undoable<Operands>) {
    const UndoableConstants constants(settings, scale);
    std::atomic<std::int64_t> updated = 0;
    for_each_tile(count, [&](std::int64_t begin, std::int64_t size) {
      std::byte* tile = at_element(begin, record);
      if (speculate_tile(constants, size, from_element(begin, operands), tile)) updated += size;
    });
    return updated;
  } else {
    adamw_not_speculated(count, record);
    return 0;
  }
}

void adamw_not_speculated(std::int64_t count, std::byte* record) {
  for (std::int64_t begin = 0; begin < count; begin += undo_tile) {
    write_untouched(at_element(begin, record));
  }
}

template <class Operands>
void adamw_finish(const AdamWSettings& settings, double scale, double true_scale, std::int64_t count,
                  const Operands& operands, const std::byte* record) {
  require_in_place(operands);
  if constexpr (undoable<Operands>) {
    const UndoableConstants wrong(settings, scale);
    const AdamWConstants<float> right(settings, true_scale);
    for_each_tile(count, [&](std::int64_t begin, std::int64_t size) {
      const std::byte* tile = at_element(begin, record);
      const Operands of = from_element(begin, operands);
      if (!was_updated(tile)) return update_elements(right, size, of);
      if (true_scale == scale) return;
      TileResidues residues;
      read_residues(size, tile, residues);
      residues.soon = tile + undo_tile_bytes(size);
      update_again(wrong, right, size, of, residues);
    });
  } else {
    adamw(settings, true_scale, count, operands);
  }
}

template <class Operands>
void adamw_undo(const AdamWSettings& settings, double scale, std::int64_t count, const Operands& operands,
                const std::byte* record) {
  require_in_place(operands);
  if constexpr (undoable<Operands>) {
    const UndoableConstants constants(settings, scale);
    for_each_tile(count, [&](std::int64_t begin, std::int64_t size) {
      const std::byte* tile = at_element(begin, record);
      if (!was_updated(tile)) return;
      TileResidues residues;
      read_residues(size, tile, residues);
      residues.soon = tile + undo_tile_bytes(size);
      take_back(constants, size, from_element(begin, operands), residues);
    });
  }
}

std::int64_t speculated_elements(std::int64_t count, const std::byte* record) {
  std::int64_t updated = 0;
  for (std::int64_t begin = 0; begin < count; begin += undo_tile) {
    if (was_updated(at_element(begin, record))) updated += std::min(undo_tile, count - begin);
  }
  return updated;
}

#define STOWAGE_SPECULATIVE_ADAMW(Operands)                                                          \
  template std::int64_t adamw_speculate(const AdamWSettings&, double, std::int64_t, const Operands&, \
                                        std::byte*);                                                 \
  template void adamw_finish(const AdamWSettings&, double, double, std::int64_t, const Operands&,    \
                             const std::byte*);                                                      \
  template void adamw_undo(const AdamWSettings&, double, std::int64_t, const Operands&, const std::byte*)
STOWAGE_SPECULATIVE_ADAMW(AdamWOperands<float>);
STOWAGE_SPECULATIVE_ADAMW(AdamWOperands<double>);
STOWAGE_SPECULATIVE_ADAMW(SplitAdamWOperands);
STOWAGE_SPECULATIVE_ADAMW(HalfAdamWOperands);
#undef STOWAGE_SPECULATIVE_ADAMW

}  // namespace stowage::cpu
