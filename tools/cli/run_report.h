// What `stowage run` says of a program's memory at its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/cli/run_record.h"

namespace stowage {

struct RunReport {
  std::vector<std::string> program;  // and its arguments
  std::optional<Bytes> limit, spill;
  std::string end;  // "exit code 0"
};

// Why no call was caught, in one line; empty where some were.
std::string nothing_caught(const RunRecord& record);

// Why calls may be missing in the record, in one line; empty where all of them are there.
std::string calls_missing(const RunRecord& record);

std::string run_report_text(const RunReport& report, const RunRecord& record);
// One page without links: memory over time for each card, calls by kind, processes.
std::string run_report_html(const RunReport& report, const RunRecord& record);

}  // namespace stowage
