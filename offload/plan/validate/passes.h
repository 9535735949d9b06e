// The validator's passes over instructions, bytes and values (structure.h: over ids, buckets, lifetimes).
#pragma once

#include <vector>

#include "offload/plan/validate/order.h"
#include "offload/plan/validate/structure.h"
#include "stowage/machine.h"

namespace stowage::validation {

// Checks that the instructions, in the order of the list, are the graph's step: every op once and in graph
// order, update ops as commits behind the gate, the clip op as the gate, recomputes of forward ops alone.
// Requires that check_ids has found nothing.
void check_program(const Graph& graph, const Plan& plan, Report& report);

// Does the part of check_program that an engine needs in order to end every step: checks that one gate runs
// the clip op, that only commits and prefetches are behind it, and that speculations can be undone. Takes
// linear time. Requires that check_ids has found nothing.
void check_gates(const Graph& graph, const Plan& plan, Report& report);

// Checks that the declared peak, live peak, host, pinned and transferred bytes are those of the buckets,
// lifetimes and instructions, and that both limits of the budget hold.
void check_totals(const Plan& plan, const Budget& budget, Report& report);

// Returns, by lifetime, all others that have arena bytes in common with it, at whatever time. Takes time in
// proportion to the number of such pairs.
std::vector<std::vector<LifetimeId>> arena_neighbours(const Plan& plan);

// Checks that no two conflicting accesses of arena bytes are left unordered: within a lifetime, between
// lifetimes that share bytes, and from step to step. Each lifetime's `end` must come after all its uses, and
// no two lifetimes may have common bytes and common positions.
void check_arena(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                 Report& report);

// Checks that no two conflicting accesses of host buckets are left unordered: by transfers, by host steps,
// and by the inputs that the caller gives at a step's beginning.
void check_host_memory(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                       Report& report);

// Follows every value through three steps, in the order of the list. A value is (tensor, version): the step
// that made it or, for parameters and optimizer state, the number of its updates. Each read in step s must
// find version s. So nothing is read before it is there or after its bytes serve another value, no parameter
// is stale or updated twice, every gradient of the step is there before the gate, and the loss reaches the
// host. Since check_arena and check_host_memory leave no conflicting pair unordered, a result for this order
// holds for any order.
void check_values(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                  Report& report);

}  // namespace stowage::validation
