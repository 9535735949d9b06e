// Checks the bytes that a plan declares, and the budget.
#pragma once

#include "offload/plan/validate/report.h"
#include "stowage/machine.h"

namespace stowage::validation {

void check_totals(const Plan& plan, const Budget& budget, Report& report);

}  // namespace stowage::validation
