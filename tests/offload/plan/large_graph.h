// A GPT of twelve layers: alike units, and more lifetimes than the search for places takes.
#pragma once

#include "stowage/graph_builder.h"
#include "stowage/machine.h"
#include "stowage/models.h"

namespace stowage::testing {

inline Graph large_graph() {
  GraphBuilder builder(DataType::bf16);
  const BuiltModel model =
      gpt(builder, {.layers = 12, .width = 512, .heads = 8, .sequence = 256, .batch = 4});
  return builder.finish(model.loss, AdamW{});
}

// A machine on which this graph is bound neither by the link nor by compute alone.
inline Machine large_graph_machine() {
  Machine machine;
  machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = 12e9;
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = 10e9;
  machine.flops_per_second = 50e12;
  machine.device_bytes_per_second = 800e9;
  machine.host_bytes_per_second = 40e9;
  return machine;
}

}  // namespace stowage::testing
