// Checks of a report's input, made before the report looks anything up in it.
#pragma once

#include "stowage/graph.h"
#include "stowage/plan.h"
#include "stowage/plan_report.h"

namespace stowage::report {

// Throws InvalidInput unless every id, position and arena byte that `plan` names is there. It is not the
// validator: a plan that belongs to the graph may still be wrong.
void require_belongs(const Graph& graph, const Plan& plan);

// Throws InvalidInput for a point without a budget, or feasible and without finite times.
void require_curve(const std::vector<CurvePoint>& curve);

// Throws InvalidInput unless the timeline's times are finite and not absurd.
void require_times(const Timeline& timeline);

// Returns the number of the plan's positions: its instructions on the compute and peer lanes.
Position positions_of(const Plan& plan);

// Throws InvalidInput for a column whose steps or values are not in order, or not finite, or do not follow
// the column before, and for a logarithmic chart with values that have no logarithm.
void require_run(const RunHistory& run);

}  // namespace stowage::report
