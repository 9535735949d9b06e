// A plan as the page's data: JSON of integers and one table of strings.
//
//   names         lists of words by code: kinds, residencies, instructions, lanes, phases
//   strings       every name once; "name", "kernel" and "unit" below index it
//   buckets       [name, kind, residency, 1 on host | 2 pinned, bytes, prefetches, offloads,
//                  tensors in all, names of the first few …]
//   lifetimes     [bucket, first, last, offset, end], five per lifetime; end -1: none
//   instructions  [kind, lane, op, lifetime, begin, end], six per instruction; -1: none; times in ns
//   uses, waits   per instruction: lifetimes; instructions, one of the step before as -1 - id
//   ops           [name, kernel, phase, unit], four per op of the graph; unit -1: none
//   run           tools/report/run_data.h; empty without one
//   positions, period, gate, peak, room, limit, overhead, curve
//
// `room` is what the budget leaves for the arena, `limit` the budget, both null without one. `curve` holds
// [bytes or null, step s, bound s] by rising budget; the seconds are null where it is infeasible.
#pragma once

#include <nlohmann/json.hpp>

#include "stowage/plan_report.h"

namespace stowage::report {

// Of a plan that require_belongs accepts, and its timeline that require_times accepts.
nlohmann::json report_data(const Graph& graph, const Plan& plan, const Timeline& timeline,
                           const Machine& machine, const ReportOptions& options);

}  // namespace stowage::report
