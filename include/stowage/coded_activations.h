// Coded activations: a change of a training step that keeps large activations for backward in 4 or 8 bits an
// element (codec.h). It belongs to the graph and changes its numbers; plans of the changed graph, whatever
// their budget, have the same bits.
//
// As in Chen et al., "ActNN: Reducing Training Memory Footprint via 2-Bit Activation Compressed Training",
// ICML 2021, section 3, backward reads decoded values and forward exact ones. Other than there, backward
// computes what costs no product from decoded values again, instead of reading it from codes of its own:
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

// Returns the step with `encode` ops behind products in forward, and `decode` ops in backward.
// - Coded tensors are results of `linear`, and of the product in `linear_gelu`, of f32, bf16 or f16 and of
//   least_coded_bytes or more, that no other unit touches and that backward reads, or that the values below
//   are made of.
// - Backward computes again, from decoded values, parameters and inputs, the results of `gelu` (also of
//   `linear_gelu`), `tanh`, `swiglu`, `rotary` and `attention` ops: all results of an op, so that attention's
//   log-sum-exp is that of decoded queries and keys, and rows of probabilities sum to 1.
// - Attention that does more arithmetic than the product of its queries, keys and values, as in samples that
// are
//   long for their width, does not run again, and these stay exact.
// - All else stays as it is: the half-block that makes the loss, results and statistics of norms, masks, sums
//   with the trunk, and what crosses half-blocks. A backward op no longer writes over what it reads decoded.
// Ids of tensors stay, and new tensors stand behind them. Names of new tensors and ops are those of the
// values and ops they belong to, with .codes, .decoded, .anew, .encode or .decode behind. A graph without
// backward is returned as it is. Throws InvalidInput if the graph has an `encode` already, or if check(graph)
// does.
Graph with_coded_activations(const Graph& graph, CodeBits bits);

// The words of --code-activations: "off" where there are no bits, "8" and "4".
std::string_view coding_word(std::optional<CodeBits> bits);
bool is_coding_word(std::string_view word);
// Requires such a word.
std::optional<CodeBits> bits_of_coding(std::string_view word);

}  // namespace stowage
