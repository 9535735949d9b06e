// Bytes that a step reads and writes between its products and attentions: by the ops' operands, and
// the least possible.
//
// The *glue* are the ops of forward, backward and update other than products (`linear…`) and attention. An op
// reads and writes each operand once; an embedding reads only the rows of its tokens from a table. The head
// is one op with products inside: only the bytes that its softmax and its f32 sums move count as glue.
//
// The *least* is what remains if glue is fused wherever it can be: an op joins an earlier one of its phase
// that shares a tensor with it, unless another op must run between the two. Inside such a group each tensor
// is read once, and written only if somebody outside reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/graph.h"

namespace stowage::bench {

struct GlueKernel {
  std::string kernel;
  std::int64_t launches = 0;
  double read = 0, written = 0, least = 0;  // bytes in a step
};

// Returns the kernels in order of first use.
std::vector<GlueKernel> glue_bytes(const Graph& graph);

}  // namespace stowage::bench
