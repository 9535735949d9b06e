// A literal training step, made by hand: a chain of units, each of two ops and one parameter.
#pragma once

#include "stowage/graph.h"

namespace stowage::testing {

// Unit k: h_k = a(x_k, W_k); x_{k+1} = b(h_k). Then loss = head(x_n). Backward reads h_k, x_k and W_k. Every
// activation has `activation_elements` f32 elements, every parameter `parameter_elements`. Each op costs
// `op_flops` flops, so op_seconds is `op_flops` divided by the machine's rate.
struct ChainOptions {
  int units = 3;
  std::int64_t activation_elements = 1024;
  std::int64_t parameter_elements = 4096;
  double op_flops = 1e6;
  bool undoable = true;  // updates can begin before the gate
};
Graph chain_graph(const ChainOptions& options = {});

// Return the id of the tensor or op of that name; fail the test if there is none.
TensorId find_tensor(const Graph& graph, const std::string& name);
OpId find_op(const Graph& graph, const std::string& name);

}  // namespace stowage::testing
