// The requests that a program makes of an allocator when it runs the steps of graphs op by op.
#pragma once

#include <span>

#include "src/history/allocation_trace.h"
#include "stowage/graph.h"

namespace stowage {

// Returns whether the tensor is a parameter or optimizer state, which exists before the first step and stays.
bool stays(const Tensor& tensor);

// Is called for a step's tensors and ops, in their order.
class StepListener {
 public:
  StepListener() = default;
  StepListener(const StepListener&) = delete;
  StepListener& operator=(const StepListener&) = delete;
  virtual ~StepListener() = default;
  virtual void allocate(TensorId tensor) = 0;
  virtual void free(TensorId tensor) = 0;
  virtual void run(const Op& /*op*/) {}  // the op's tensors are allocated; those that stay are not announced
};

// Inputs are allocated first, every other tensor before the op that writes it first, and freed after the op
// that touches it last (a workspace: its only one). Nothing is aliased.
void play_step(const Graph& graph, StepListener& listener);

// Makes each graph one iteration, on one stream. Parameters and optimizer state, those of the first graph,
// are allocated ahead and stay; the rest is as in play_step.
AllocationTrace trace_of_steps(std::span<const Graph> graphs);

}  // namespace stowage
