// The part of check(graph) that judges codes: ops `encode` and `decode` (launch_table.h).
#pragma once

#include <string>

#include "stowage/graph.h"

namespace stowage {

// Returns what is wrong with the graph's codes; an empty text if nothing is. Requires that all else that
// check(graph) judges is right.
std::string fault_of_codes(const Graph& graph);

}  // namespace stowage
