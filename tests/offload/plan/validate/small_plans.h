// Plans written by hand, with the graph that they execute.
#pragma once

#include <string>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage::testing {

// tokens -> embed -> x0 -> f (with W) -> h -> g -> x1 -> head -> loss, and back. Every f32 tensor has
// 64 elements; g.backward works on dx1 in place.
Graph small_graph();

// W is streamed twice and updated on the host, x0 offloaded, h recomputed from them. Five slots of
// 256 bytes. Every wait is needed.
//   position  0 embed  1 f  2 g  3 head  4 head.backward  5 f again  6 g.backward  7 f.backward  8 square
Plan small_streamed_plan();

// Like small_streamed_plan(), but the update begins before the gate: instruction 17, behind the offload of
// its gradient and both prefetches of W.
Plan small_speculating_plan();

// Everything on the device and updated there.
//   position  0 embed  1 f  2 g  3 head  4 head.backward  5 g.backward  6 f.backward  7 square  8 adamw
Plan small_resident_plan();

// Find things by name. The test fails if there is none.
TensorId tensor_named(const Graph& graph, const std::string& name);
OpId op_named(const Graph& graph, const std::string& name);
BucketId bucket_named(const Plan& plan, const std::string& name);
// Return the first instruction of that kind that runs the op, and the number-th transfer of the bucket.
InstructionId run_of(const Graph& graph, const Plan& plan, InstructionKind kind, const std::string& op);
InstructionId transfer_of(const Plan& plan, InstructionKind kind, const std::string& bucket, int number = 0);

// Takes the instruction out and renumbers what names others. Lifetimes that it ended end with their
// last remaining use.
void remove_instruction(Plan& plan, InstructionId id);
// Puts a copy of the instruction, without waits, in front of place `at`.
void insert_copy(Plan& plan, InstructionId id, InstructionId at);
// Moves the instruction to place `to`; waits follow it.
void move_instruction(Plan& plan, InstructionId from, InstructionId to);

// Sets the plan's totals to the bytes of its lists.
void settle_totals(Plan& plan);

}  // namespace stowage::testing
