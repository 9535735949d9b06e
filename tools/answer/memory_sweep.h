// Answers to one question at many device budgets, a row for each budget.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/answer/plan_answer.h"

namespace stowage {

struct SweepRow {
  std::int64_t batch = 0;    // batch size, in a sweep over batches
  std::int64_t devices = 0;  // number of devices, in a sweep over devices
  std::string codes{};       // word of --code-activations, in a sweep over these
  PlanAnswer answer;
};

// Called with a text that says what is planned next: "budget 3 of 12".
using Progress = std::function<void(const std::string&)>;

// Returns up to `count` budgets in whole bytes, from the smallest that works to the need, each larger than
// the one before by the same factor; equal budgets are returned once.
std::vector<Bytes> sweep_budgets(Bytes minimum, Bytes need, std::size_t count);

// Returns a row per budget of sweep_budgets. Ignores the question's own device budget.
std::vector<SweepRow> sweep_memory(PlanQuestion question, std::size_t count, const Progress& progress);

// Returns the page of `plan`, which answers `question`. With the policy `automatic` its curve shows what some
// other device budgets would give.
std::string report_page(const PlanQuestion& question, const Plan& plan, const Progress& progress);

}  // namespace stowage
