// Local search around choices, for small graphs, where rounding the residency program's answer costs most.
#pragma once

#include <functional>

#include "offload/plan/candidate.h"

namespace stowage {

// Changes the choices of one item or parameter bucket, or of two, as long as `is_better` says that a change
// is. Asks it for no more than `trials` changes, and for none where the graph has more single changes than
// that.
void improve_choices(const Problem& problem, Choices choices, std::size_t trials,
                     const std::function<bool(const Choices&)>& is_better);

}  // namespace stowage
