// One question at many device budgets, one row each.
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

// One row per budget of sweep_budgets. The question's own device budget is not looked at.
std::vector<SweepRow> sweep_memory(PlanQuestion question, std::size_t count, const Progress& progress);

inline constexpr std::size_t report_points = 8;  // of a page's curve
// The page of `plan`, which answers `question`, beside what `points` other device budgets would give (0:
// none).
std::string report_page(const PlanQuestion& question, const Plan& plan, const std::string& name,
                        std::size_t points, const Progress& progress);

}  // namespace stowage
