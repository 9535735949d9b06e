// Checks for engines that train one model together: the rank's graph and its communicator must fit each
// other.
#pragma once

#include "stowage/communicator.h"
#include "stowage/engine.h"
#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// Throws InvalidInput for a communicator that is not the graph's rank of as many, and for collectives that
// are not as launch_table.h says. `communicator` may be null.
void check_ranks(const Graph& graph, const Communicator* communicator);

// Called by all ranks together. Throws InvalidInput on all where one has another plan, seed or first step
// than rank 0: they would bring one another other tensors than expected, or make other numbers.
void expect_one_plan(Communicator& communicator, Device& device, const Plan& plan,
                     const EngineOptions& options);

// Throws CommunicatorError where another rank has failed first.
void rethrow_of_another_rank(Communicator& communicator);

}  // namespace stowage
