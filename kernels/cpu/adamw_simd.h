// AdamW in vectors of the widest instruction set that the machine has (Highway). Every instruction set gives
// the bits of kernels/math/adamw.h: every operation is rounded by itself, in the same order. These functions
// run on the calling thread; adamw.cpp and speculative_adamw.cpp have the loops over threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/undo_record.h"

namespace stowage::cpu {

// Constants of an update, and of its inverse, which computes the old values from the new ones.
struct UndoableConstants {
  AdamWConstants<float> update;
  float inverse_beta1, inverse_beta2;
  float inverse_decay;  // 1 / (1 - learning rate * weight decay)

  UndoableConstants(const AdamWSettings& settings, double scale)
      : update(settings, scale),
        inverse_beta1(static_cast<float>(1 / settings.beta1)),
        inverse_beta2(static_cast<float>(1 / settings.beta2)),
        inverse_decay(static_cast<float>(1 / (1 - settings.learning_rate * settings.weight_decay))) {}
};

// Updates elements [0, count). Operands: AdamWOperands<float>, SplitAdamWOperands or HalfAdamWOperands, here
// and below.
template <class Operands>
void update_elements(const AdamWConstants<float>& constants, std::int64_t count, const Operands& operands);

// Updates in place and sets the residues that undo it. Requires count <= undo_tile. Returns false if a
// gradient is not finite; the tile is updated all the same.
template <class Operands>
bool update_undoably(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
                     TileResidues& residues);

// Undoes update_undoably of the same constants and residues.
template <class Operands>
void take_back(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
               const TileResidues& residues);

// As take_back, then update_elements with `right`, but the old values stay in registers.
template <class Operands>
void update_again(const UndoableConstants& wrong, const AdamWConstants<float>& right, std::int64_t count,
                  const Operands& operands, const TileResidues& residues);

// The functions above for one instruction set.
template <class Operands>
struct UpdateFunctions {
  const char* instruction_set;
  void (*update_elements)(const AdamWConstants<float>&, std::int64_t, const Operands&);
  bool (*update_undoably)(const UndoableConstants&, std::int64_t, const Operands&, TileResidues&);
  void (*take_back)(const UndoableConstants&, std::int64_t, const Operands&, const TileResidues&);
  void (*update_again)(const UndoableConstants&, const AdamWConstants<float>&, std::int64_t, const Operands&,
                       const TileResidues&);
};

// Returns the names of the compiled instruction sets that this machine has, best first; for tests
// and measurements.
std::vector<std::string> instruction_sets();
std::string instruction_set_in_use();
// Makes updates use the instruction set of this name; "" for the best. Requires that no thread updates
// meanwhile. Throws InvalidInput if there is none of the name.
void use_instruction_set(const std::string& name);

}  // namespace stowage::cpu
