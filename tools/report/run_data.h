// A training run as the page's data and facts.
//
//   charts   [{title, logarithmic, lines: [{name, points, columns: [first, last, least, mean, most, …]}]}]
#pragma once

#include <nlohmann/json.hpp>

#include "stowage/plan_report.h"

namespace stowage::report {

// Throws InvalidInput for a column whose steps or values are not in order, or not finite, or do not follow on
// the column before, and for a logarithmic chart with values that have no logarithm.
void require_run(const RunHistory& run);

// Of a run that require_run accepts.
nlohmann::json run_data(const RunHistory& run);

}  // namespace stowage::report
