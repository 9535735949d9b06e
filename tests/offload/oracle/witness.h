// From the oracle's schedule to a real plan, which validate() and simulate() judge: what the oracle claims
// exists.
#pragma once

#include <optional>

#include "stowage/plan.h"
#include "tests/offload/oracle/search.h"

namespace stowage::oracle {

// Offsets for the schedule's stays below the device budget, and with them a plan that is no slower; nullopt
// when there are none, or none are found (`complete` is then false).
std::optional<Plan> make_witness(const Graph& graph, const Schedule& schedule, Bytes device, bool& complete);

}  // namespace stowage::oracle
