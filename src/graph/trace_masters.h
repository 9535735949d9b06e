// Weights in f32 that a step reads in half as many bytes, as autocast has them.
#pragma once

#include <vector>

#include "stowage/graph.h"

namespace stowage {

// The kernel of an op that writes what it reads in another type.
inline constexpr const char* cast_kernel = "cast";

// A parameter in f32 whose only reader is a cast to bf16 or f16, and whose gradient is the cast of one of
// that type, becomes a parameter of that type: its casts go, and AdamW keeps what makes a master weight of it
// (launch_table.h), as for a graph that GraphBuilder makes in that type. Half the bytes cross the link.
// Others, such as a tied table, stay as they are. `graph` has no update ops yet; `gradients`: by tensor, of
// each parameter.
void take_masters(Graph& graph, std::vector<TensorId>& gradients);

}  // namespace stowage
