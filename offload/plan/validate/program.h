// Checks that the instructions, in the order of the list, are the graph's step.
#pragma once

#include "offload/plan/validate/structure.h"

namespace stowage::validation {

// Every op once and in graph order, update ops as commits behind the gate, the clip op as the gate,
// recomputes of forward ops alone. Needs a plan in which check_ids found nothing.
void check_program(const Graph& graph, const Plan& plan, Report& report);

}  // namespace stowage::validation
