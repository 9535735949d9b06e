// The head of the page, as HTML: what a reader wants to know before any picture.
#pragma once

#include <string>

#include "stowage/plan_report.h"

namespace stowage::report {

// Groups of labelled facts: memory, host, traffic, step, machine. `peer_bytes`: as in tally.h.
std::string facts_html(const Plan& plan, const Timeline& timeline, const Machine& machine,
                       const ReportOptions& options, Bytes peer_bytes = 0);

// Groups of facts about a run, in a row of their own.
std::string failure_html(const RunHistory& run);
std::string run_html(const RunHistory& run);

// One line on how the step ends up: "fits", or which budget it breaks.
std::string verdict_html(const Plan& plan, const Machine& machine, const Budget& budget);

// "245 ms", "1.32 s": for people.
std::string seconds_text(double seconds);

}  // namespace stowage::report
