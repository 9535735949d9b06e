// Figures of each device in a run of several: a row of the page, of the summary and of the log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "samples/report/report.h"
#include "stowage/plan_report.h"

namespace stowage::samples {

// Peaks count against a device budget; bytes are those of the last step; seconds are the mean of a step.
struct RankRow {
  std::uint64_t rank = 0;
  std::uint64_t steps = 0;
  Bytes planned_peak_bytes = 0;
  Bytes device_peak_bytes = 0;
  double stall_fraction = 0;
  Bytes h2d_bytes = 0;
  Bytes d2h_bytes = 0;
  Bytes peer_bytes = 0;
  double collective_seconds = 0;  // StepReport::collective_seconds
  double waiting_seconds = 0;     // part of these seconds spent waiting for other ranks: see set_waiting
};

RankRow row_of(std::uint64_t rank, const Setup& setup, const RunStatistics& run);

// A collective ends on all ranks at about the same time, so the rank with the least time in collectives has
// come to them last: each other rank has waited for as long as its collectives took longer.
void set_waiting(std::vector<RankRow>& rows);

// Write a row as a line without its end, {"rank": N, …}; and read a text of such lines alone.
std::string to_json_line(const RankRow& row);
std::vector<RankRow> rows_of_json_lines(std::string_view text);

// Returns lines for people; nothing for no rows.
std::string describe(const std::vector<RankRow>& rows);
RunTable table_of(const std::vector<RankRow>& rows);

}  // namespace stowage::samples
