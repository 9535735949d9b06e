// Follows every value through three steps, in the order of the list.
#pragma once

#include "offload/plan/validate/order.h"
#include "offload/plan/validate/structure.h"

namespace stowage::validation {

// A value is (tensor, version): the step that made it or, of parameters and optimizer state, how
// often it was updated. Each read of step s must meet version s, so that nothing is read before it
// is there or after its bytes serve another, no parameter is stale or updated twice, every gradient
// of the step is there before the gate, and the loss reaches the host. Since check_arena and
// check_host_memory leave no conflicting pair unordered, what holds in this order holds in any.
void check_values(const Graph& graph, const Plan& plan, const Places& places, const Order& order,
                  Report& report);

}  // namespace stowage::validation
