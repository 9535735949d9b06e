// AdamW before the norm of all gradients is known.
//
// The gradients' scale is 1 in nearly every step, but is known only with the last gradient. An update is
// therefore made as soon as its own gradient is there, as if the scale were known, with a record that undoes
// it (undo_record.h). Once the norm is known, either nothing is left to do, or the update is made again with
// the true scale, or it is undone:
//
//     adamw_speculate ──► record ──┬──► adamw_finish: as if adamw had run with the true scale
//     adamw_not_speculated ────────┘└─► adamw_undo: as if nothing had run
//
// The results have the bits of `adamw` on every instruction set, and each instruction set reads the records
// of any other.
//
// All calls require: the record has undo_record_bytes (launch_table.h), operands are updated in place
// (new_parameter == parameter, and so on; else InvalidInput), and gradients, settings, scale and count are
// the same from one call to the next. f64 is never speculated: its records say that nothing was updated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/optimizer.h"

namespace stowage::cpu {

// Updates with this scale and writes the record that undoes it. A tile of 2,048 elements is left untouched,
// and the record says so, if it has a gradient that is not finite, or if its residues exceed their room.
// Returns the elements updated.
template <class Operands>
std::int64_t adamw_speculate(const AdamWSettings& settings, double scale, std::int64_t count,
                             const Operands& operands, std::byte* record);

// Writes the record of an update that was not speculated: adamw_finish then updates every element.
void adamw_not_speculated(std::int64_t count, std::byte* record);

// Ends the update: every byte is as if adamw had run with true_scale alone. If true_scale == scale, only
// tiles left untouched are updated. Otherwise the other tiles are undone and updated again in the same pass
// over memory.
template <class Operands>
void adamw_finish(const AdamWSettings& settings, double scale, double true_scale, std::int64_t count,
                  const Operands& operands, const std::byte* record);

// Undoes adamw_speculate: every byte is as it was before.
template <class Operands>
void adamw_undo(const AdamWSettings& settings, double scale, std::int64_t count, const Operands& operands,
                const std::byte* record);

// Returns the number of elements that the update of this record has changed.
std::int64_t speculated_elements(std::int64_t count, const std::byte* record);

}  // namespace stowage::cpu
