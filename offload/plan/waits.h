// Leaves out the waits that lane order, other waits and the gate imply.
#pragma once

#include <vector>

#include "stowage/plan.h"

namespace stowage {

// `wanted[i]`: everything that instruction i must come after. Sets `waits` of each instruction to a
// subset that implies all of it and of which no member is implied by the rest.
void reduce_waits(Plan& plan, const std::vector<std::vector<Wait>>& wanted);

}  // namespace stowage
