// A question at many device budgets, a row for each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/answer/plan_answer.h"

namespace stowage {

struct SweepRow {
  std::int64_t batch = 0;    // of a sweep over batches
  std::int64_t devices = 0;  // of a sweep over them
  PlanAnswer answer;
};

// Told what is planned next: "budget 3 of 12".
using Progress = std::function<void(const std::string&)>;

// `count` budgets from the smallest that works to the need, each the same factor above the one before, in
// whole bytes; equal ones once.
std::vector<Bytes> sweep_budgets(Bytes minimum, Bytes need, std::size_t count);

// Returns a row per budget of sweep_budgets. Ignores the question's own device budget.
std::vector<SweepRow> sweep_memory(PlanQuestion question, std::size_t count, const Progress& progress);

// Returns the page of `plan`, which answers `question`. With the policy `automatic` its curve shows what some
// other device budgets would give.
std::string report_page(const PlanQuestion& question, const Plan& plan, const Progress& progress);

}  // namespace stowage
