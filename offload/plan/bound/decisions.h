// The decisions of the lower bound's program (program.h), with the least that each option of each
// costs. In all of them a mixture of options costs no more than what it stands for.
#pragma once

#include <vector>

#include "offload/plan/bound/costs.h"

namespace stowage {

// One for each parameter: streamed or held, updated late or early; or resident.
std::vector<ShareDecision> parameter_decisions(const BoundCosts& costs);
// One for each value that backward wants of forward. With one micro-batch, one for each gap between two uses
// of a value, or of several that one op makes.
std::vector<ShareDecision> activation_decisions(const BoundCosts& costs);

}  // namespace stowage
