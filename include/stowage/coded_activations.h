// Coded activations: a change of a training step that keeps large activations for backward in 4 or 8 bits an
// element (codec.h). It belongs to the graph and changes its numbers; plans of the changed graph, whatever
// their budget, have the same bits.
//
// As in Chen et al., "ActNN: Reducing Training Memory Footprint via 2-Bit Activation Compressed Training",
// ICML 2021, section 3, backward reads decoded values and forward exact ones. Other than there, what costs no
// product is made from decoded values anew instead of being coded, so that all of a half-block's backward is
// that of the same decoded values:
//
//   forward     x ─ norm ─ linear ─ pre ─ gelu ─ y ─ linear ─ …        pre is exact
//                                    └─ encode ─ codes
//   backward        codes ─ decode ─ pre' ─ gelu ─ y'                  what backward read from pre and y,
//                                                                      it reads from pre' and y'
#pragma once

#include <optional>
#include <string_view>

#include "stowage/codec.h"
#include "stowage/graph.h"

namespace stowage {

// Activations of fewer bytes are not coded: they take no memory worth the time.
inline constexpr Bytes least_coded_bytes = 64_KiB;

// Returns the step with coded activations: `encode` ops behind products in forward, `decode` ops and anew
// what follows from their results in backward.
// - Coded is the result of a product (`linear`, and `linear_gelu` before GELU), of f32, bf16 or f16 and
//   least_coded_bytes or more, from which backward reads, directly or through the next ones, and which no
//   other unit touches.
// - Made anew in backward, by ops of the same kernels named "….anew", is what `gelu`, `tanh`, `swiglu`,
//   `rotary` and `attention` make of coded values: with all their results, so that attention's log-sum-exp is
//   that of the decoded queries and keys, and rows of probabilities sum to 1.
// - The last half-block, which makes the loss, stays as it is, and so does all else: norms' results and
//   statistics, masks, sums with the trunk, what crosses half-blocks.
// Ids of tensors stay what they were; new tensors stand behind them. A graph without backward, or without
// such values, is returned as it is. Requires that check(graph) passes, and that it has no `encode` yet:
// throws InvalidInput otherwise.
Graph with_coded_activations(const Graph& graph, CodeBits bits);

// The words of --code-activations: "off" where there are no bits, "8" and "4".
std::string_view coding_word(std::optional<CodeBits> bits);
bool is_coding_word(std::string_view word);
// Requires such a word.
std::optional<CodeBits> bits_of_coding(std::string_view word);

}  // namespace stowage
