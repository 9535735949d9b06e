// Traces in the format of Chrome's trace viewer, which ui.perfetto.dev opens.
#pragma once

#include <span>
#include <string>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage::samples {

// Returns one step as two processes, "planned" above "measured", each with a thread per lane. Intervals are
// by instruction, in seconds from the start of the step; either may be empty.
std::string trace_json(const Graph& graph, const Plan& plan, std::span<const Interval> planned,
                       std::span<const Interval> measured);

}  // namespace stowage::samples
