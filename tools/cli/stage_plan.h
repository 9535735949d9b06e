// The plan of one stage of a pipeline in numbers.
#pragma once

#include "offload/parallel/grid_search.h"
#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

// Requires a plan of the graph on the machine. `peak`: device budget that it fits into.
StagePlan stage_plan(const Graph& graph, const Plan& plan, Bytes peak, const Machine& machine);

}  // namespace stowage
