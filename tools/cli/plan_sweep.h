// `stowage plan --sweep`: the same question at many budgets or batch sizes, one row each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/cli/plan_answer.h"

namespace stowage {

struct Sweep {
  enum class Over : std::uint8_t { memory, batch };
  Over over = Over::memory;
  std::size_t budgets = 12;
  std::vector<std::int64_t> batches;  // empty: 1, 2, 4, … until one does not fit
};

// "memory", "memory=N" (2 to 1000), "batch", "batch=1,2,4". Throws InvalidInput that quotes `text`.
Sweep parse_sweep(const std::string& text);

struct SweepRow {
  std::int64_t batch = 0;  // of a sweep over batches
  PlanAnswer answer;
};

// Told what is planned next: "budget 3 of 12".
using Progress = std::function<void(const std::string&)>;

// `count` budgets from the smallest that works to the need, each the same factor above the one before, in
// whole bytes; equal ones once.
std::vector<Bytes> sweep_budgets(Bytes minimum, Bytes need, std::size_t count);

// One row per budget of sweep_budgets. The question's own device budget is not looked at.
std::vector<SweepRow> sweep_memory(PlanQuestion question, std::size_t count, const Progress& progress);

// One row per batch size, the last of an open sweep the first that does not fit. The question has a model
// and, for an open sweep, a device budget; InvalidInput otherwise.
std::vector<SweepRow> sweep_batch(PlanQuestion question, const std::vector<std::int64_t>& batches,
                                  const Progress& progress);

std::string describe(const std::vector<SweepRow>& rows);
nlohmann::ordered_json to_json(const std::vector<SweepRow>& rows);  // an array

}  // namespace stowage
