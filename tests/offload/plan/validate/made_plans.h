// Plans that make_plan makes, to be broken.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage::testing {

struct MadePlan {
  std::string name;
  Graph graph;
  Plan plan;
  Budget budget;
};

// Random graphs of the seeds [first, last) or the first of them (draws.h), each at its minimum, at a random
// budget, and under Policy::none; then a small GPT the same way.
void for_each_made_plan(std::uint64_t first, std::uint64_t last,
                        const std::function<void(const MadePlan&)>& use);

// Findings as one text, a line each.
std::string joined(const std::vector<std::string>& findings);

}  // namespace stowage::testing
