// Settings from the attributes of update ops, for the adapters of all devices.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/math/adamw.h"
#include "src/nn/kernel_call.h"

namespace stowage {

// Returns the op's settings and the step's.
inline AdamWSettings adamw_settings(const KernelCall& call) {
  const StepContext& step = call.step();
  return {call.real("beta1"),        call.real("beta2"), call.real("epsilon"),
          call.real("weight_decay"), step.learning_rate, step.step - step.skipped_steps};
}

// Pieces of a square_sum: the first `count` elements in pieces of `piece`; a single piece if the op has no
// attribute `pieces`.
struct SquarePieces {
  std::int64_t count, pieces, piece;
};
inline SquarePieces square_pieces(const KernelCall& call) {
  const std::int64_t elements = call.elements(0);
  if (!call.has("pieces")) return {elements, 1, elements};
  const SquarePieces of{call.counted(elements), call.positive("pieces"), call.positive("piece")};
  if (call.written_elements(0) != of.pieces) call.fail("needs an output of one element for each piece");
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;
  if (of.piece > most / of.pieces) call.fail("has pieces of too many elements");
  if (of.count > of.pieces * of.piece) call.fail("has elements that are in no piece");
  return of;
}

// Returns the inputs of an op of the norm, each of `pieces` elements. Valid until the thread's next call: the
// vector is reused, so that a step allocates nothing.
inline std::span<const double* const> norm_sums(const KernelCall& call, std::int64_t pieces) {
  thread_local std::vector<const double*> sums;
  sums.clear();
  for (std::size_t i = 0; i < call.reads(); ++i) {
    if (call.elements(i) != pieces) call.fail("needs inputs of one element for each piece");
    sums.push_back(call.read<double>(i));
  }
  return sums;
}

}  // namespace stowage
