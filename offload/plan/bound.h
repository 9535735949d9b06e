// Lower bound on the step time of any plan under a budget (docs/design.md, section 7).
#pragma once

#include <string>

#include "offload/plan/candidate.h"

namespace stowage {

struct StepBound {
  double seconds = 0;
  std::string bound_by;  // compute, h2d, d2h, host
};

// Of every plan that runs the program's order and updates each parameter where its optimizer state lives.
// It counts only what all of them must do. Each op runs once. Each parameter is resident with its state, or
// comes in for forward and again for backward unless it is held between, has its gradient out in backward and
// its update on the host before forward ends. What a forward op leaves for backward is kept, crosses twice,
// or costs at least that op once more. What is on the device when forward turns into backward fits beside
// that op's operands; at the gate the residents' gradients, which never leave, fit beside them. Exact
// clipping puts updates behind backward, so a step is no shorter than the busiest lane of its forward and
// that of its backward. An op hides no more of a link's work than there is room for beside its operands
// (bound_program.cpp).
//
// This is a linear program over shares of each decision (share_program.h), whose answer is a bound whatever
// rounding did to it.
StepBound lower_bound(const Problem& problem, Bytes device_budget);

}  // namespace stowage
