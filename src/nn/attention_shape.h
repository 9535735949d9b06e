// The shape of an attention op, from its operands and attributes (include/stowage/launch_table.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/nn/kernel_call.h"

namespace stowage::nn {

// Sets heads and widths. Requires qkv as operand 0.
template <class Shape>
void read_heads(const KernelCall& call, Shape& shape) {
  shape.heads = call.positive("heads");
  shape.key_heads = call.has("key_heads") ? call.positive("key_heads") : shape.heads;
  if (shape.heads % shape.key_heads != 0) call.fail("needs a multiple of its key heads as heads");
  const std::int64_t all_heads = shape.heads + 2 * shape.key_heads;
  if (call.columns(0) % all_heads != 0)
    call.fail("needs queries, keys and values that divide into its heads");
  shape.width = call.columns(0) / all_heads * shape.heads;
}

// Requires qkv as operand 0, and the seen positions or the documents' begins, if there are any, as operand
// `optional`. Shape: an AttentionShape of a backend's kernels.
template <class Shape>
Shape attention_shape(const KernelCall& call, std::size_t optional) {
  Shape shape;
  read_heads(call, shape);
  shape.sequence = call.positive("sequence");
  shape.samples = call.rows(0) / shape.sequence;
  shape.causal = call.integer("causal") != 0;
  shape.dropout = call.real("dropout");
  shape.random = call.random();
  shape.window = call.integer_if_present("window");
  if (call.rows(0) % shape.sequence != 0) call.fail("needs whole sequences");
  const bool documents = call.integer_if_present("documents") != 0;
  if (documents && optional >= call.reads()) call.fail("needs the begins of its documents");
  if (optional < call.reads())
    (documents ? shape.begins : shape.seen) = call.tokens(optional, call.rows(0)).data();
  if ((shape.window > 0 || documents) && (!shape.causal || shape.seen != nullptr))
    call.fail("has a window or documents without a causal mask, or with padding");
  shape.padded_at_end = shape.seen != nullptr && call.integer_if_present("padding_at_end") != 0;
  return shape;
}

}  // namespace stowage::nn
