// Checks the bytes that a plan declares, and the budget.
#pragma once

#include "offload/plan/validate/report.h"
#include "stowage/machine.h"

namespace stowage::validation {

// The declared peak, live peak, host, pinned and transferred bytes are those of the buckets, lifetimes and
// instructions, and both limits of the budget hold.
void check_totals(const Plan& plan, const Budget& budget, Report& report);

}  // namespace stowage::validation
