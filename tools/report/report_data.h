// The parts of the page that plan_report puts together: files, data and head.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "stowage/plan_report.h"

namespace stowage::report {

// The files of tools/report/page, as CMake embeds them.
extern const std::string_view page_html;  // the page, with {{slots}} that plan_report fills in
extern const std::string_view page_style;
extern const std::string_view page_script;  // all of the page's scripts, in order

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
//   run           run_data(); empty without a run
//   positions, period, gate, peak, room, limit, overhead, curve
//
// `room` is what the budget leaves for the arena, `limit` the budget, both null without one. `curve` holds
// [bytes or null, step s, bound s] by rising budget; the seconds are null where it is infeasible.
//
// Requires a plan that require_belongs accepts, and a timeline that require_times accepts.
nlohmann::json report_data(const Graph& graph, const Plan& plan, const Timeline& timeline,
                           const Machine& machine, const ReportOptions& options);

// A run that require_run accepts as the page's charts:
// [{title, logarithmic, lines: [{name, points, columns: [first, last, least, mean, most, …]}]}]
nlohmann::json run_data(const RunHistory& run);

// The head of the page, as HTML: what a reader wants to know before any picture.

// Returns groups of labelled facts: memory, host, traffic, step, machine. `peer_bytes`: as in tally.h.
std::string facts_html(const Plan& plan, const Timeline& timeline, const Machine& machine,
                       const ReportOptions& options, Bytes peer_bytes = 0);

// Return a run's failure, and groups of facts about it in a row of their own.
std::string failure_html(const RunHistory& run);
std::string run_html(const RunHistory& run);

// Returns a line on how the step ends up: "fits", or which budget it breaks.
std::string verdict_html(const Plan& plan, const Machine& machine, const Budget& budget);

// Returns a text for people such as "245 ms" or "1.32 s".
std::string seconds_text(double seconds);

}  // namespace stowage::report
