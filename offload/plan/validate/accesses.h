// Checks that no two conflicting accesses of the same bytes are left unordered.
#pragma once

#include "offload/plan/validate/order.h"
#include "offload/plan/validate/structure.h"

namespace stowage::validation {

// Arena bytes: within a lifetime, between lifetimes that share bytes, and from step to step; each
// lifetime's `end` after all its uses; no two lifetimes with common bytes and common positions.
void check_arena(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                 Report& report);

// Host buckets: transfers, host steps and the inputs that the caller gives at a step's beginning.
void check_host_memory(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                       Report& report);

}  // namespace stowage::validation
