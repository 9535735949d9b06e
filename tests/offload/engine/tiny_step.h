// The smallest training steps that have every kind of instruction, graph and plans made by hand.
#pragma once

#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/plan.h"

namespace stowage::testing {

inline constexpr std::int64_t tiny_elements = 1024;  // of input and parameter: 4 KiB each
inline constexpr TensorId tiny_input = 0;
inline constexpr TensorId tiny_weight = 1;
inline constexpr TensorId tiny_m = 6;

// loss = mean of (weight * input)^2 / 2, one parameter.
Graph tiny_graph();

// Weight streamed, its forward product offloaded and brought back, updated on the host.
//
//   h2d      [ w ][ x ]             [ h ]
//   compute            [ forward ]       [ backward ][ square_sum ]
//   d2h                     [ h ][ loss ]                         [ dw ][ sq ]
//   host     [ adamw ] of the step before                                    [ clip ]
Plan tiny_streamed_plan();

// Everything on the device, updated there; only the clip scale comes from the host.
Plan tiny_resident_plan();

// Kernels of tiny_graph. They allocate nothing.
LaunchTable tiny_kernels();

}  // namespace stowage::testing
