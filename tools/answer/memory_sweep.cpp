#include "tools/answer/memory_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stowage/plan_report.h"

namespace stowage {

std::vector<Bytes> sweep_budgets(Bytes minimum, Bytes need, std::size_t count) {
  std::vector<Bytes> budgets;
  const double factor = std::log(static_cast<double>(need) / static_cast<double>(minimum));
  for (std::size_t i = 0; i < count; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(count - 1);
    const auto between =
        static_cast<Bytes>(std::llround(static_cast<double>(minimum) * std::exp(factor * part)));
    const Bytes budget = i == 0 ? minimum : i + 1 == count ? need : std::clamp(between, minimum, need);
    if (budgets.empty() || budget != budgets.back()) budgets.push_back(budget);
  }
  return budgets;
}

std::vector<SweepRow> sweep_memory(PlanQuestion question, std::size_t count, const Progress& progress) {
  Planner planner(question.graph, question.rates, question.options);
  const Bytes minimum = planner.minimum_bytes();
  // An emulated policy may hold more than the step needs.
  const Bytes need = std::max(minimum, planner.need_bytes());
  const std::vector<Bytes> budgets = sweep_budgets(minimum, need, count);
  std::vector<SweepRow> rows;
  for (const Bytes budget : budgets) {
    progress(fmt::format("budget {} of {}", rows.size() + 1, budgets.size()));
    question.budget.device = budget;
    rows.push_back({0, 0, {}, answer(question, planner)});
  }
  return rows;
}

std::string report_page(const PlanQuestion& question, const Plan& plan, const Progress& progress) {
  constexpr std::size_t points = 8;  // number of points of the curve
  ReportOptions options;
  options.name = question.model ? describe(*question.model) : question.source;
  options.machine_name = question.machine;
  options.budget = question.budget_of_each();
  if (question.options.policy == Policy::automatic)
    for (const SweepRow& row : sweep_memory(question, points, progress))
      options.curve.push_back({row.answer.budget.device, row.answer.step_seconds,
                               row.answer.lower_bound_seconds, row.answer.feasible});
  return plan_report(question.graph, plan, question.rates, options);
}

}  // namespace stowage
