// The report of `stowage run` on a program's memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/cli/run_record.h"

namespace stowage {

struct RunReport {
  std::vector<std::string> program;  // the program and its arguments
  std::optional<Bytes> limit, spill;
  std::string end;  // how the program ended: "exit code 0"
};

// Returns one line that says why no call was caught; empty if some were.
std::string nothing_caught(const RunRecord& record);

// Returns one line that says why calls may be missing in the record; empty if all are there.
std::string calls_missing(const RunRecord& record);

std::string run_report_text(const RunReport& report, const RunRecord& record);
// Returns a page without links: memory over time for each card, calls by kind, processes.
std::string run_report_html(const RunReport& report, const RunRecord& record);

}  // namespace stowage
