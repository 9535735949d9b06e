// Which lifetimes have arena bytes in common.
#pragma once

#include <vector>

#include "stowage/plan.h"

namespace stowage::validation {

// By lifetime: the others that stand on some of its bytes, at whatever time. Takes as long as there are
// pairs.
std::vector<std::vector<LifetimeId>> arena_neighbours(const Plan& plan);

}  // namespace stowage::validation
