// Checks that the instructions, in the order of the list, are the graph's step.
#pragma once

#include "offload/plan/validate/structure.h"

namespace stowage::validation {

// Every op once and in graph order, update ops as commits behind the gate, the clip op as the gate,
// recomputes of forward ops alone. Needs a plan in which check_ids found nothing.
void check_program(const Graph& graph, const Plan& plan, Report& report);

// The part of check_program that an engine needs in order to end every step: one gate that runs the clip op,
// commits and prefetches alone behind it, and speculations that can be undone. Takes linear time.
void check_gates(const Graph& graph, const Plan& plan, Report& report);

}  // namespace stowage::validation
