#include "samples/report/rank_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/tokens/text_lines.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

// The columns behind the rank's number.
std::vector<std::string> cells_of(const RankRow& row) {
  return {format_bytes(row.planned_peak_bytes),
          format_bytes(row.device_peak_bytes),
          percent(row.stall_fraction),
          format_bytes(row.h2d_bytes),
          format_bytes(row.d2h_bytes),
          format_bytes(row.peer_bytes),
          format_seconds(row.collective_seconds),
          format_seconds(row.waiting_seconds)};
}

}  // namespace

RankRow row_of(std::uint64_t rank, const Setup& setup, const RunStatistics& run) {
  return {.rank = rank,
          .steps = run.steps(),
          .planned_peak_bytes = setup.machine.budget_for(setup.plan->device_peak_bytes),
          .device_peak_bytes = setup.machine.budget_for(run.device_peak_bytes()),
          .stall_fraction = run.stall_fraction(),
          .h2d_bytes = run.h2d_bytes(),
          .d2h_bytes = run.d2h_bytes(),
          .peer_bytes = run.peer_bytes(),
          .collective_seconds = run.collective_seconds()};
}

void set_waiting(std::vector<RankRow>& rows) {
  const auto last = std::min_element(rows.begin(), rows.end(), [](const RankRow& one, const RankRow& other) {
    return one.collective_seconds < other.collective_seconds;
  });
  if (last == rows.end()) return;
  const double least = last->collective_seconds;
  for (RankRow& row : rows) row.waiting_seconds = row.collective_seconds - least;
}

std::string to_json_line(const RankRow& row) {
  return fmt::format(
      R"({{"rank": {}, "steps": {}, "planned_peak_bytes": {}, "device_peak_bytes": {}, "stall_fraction": {}, )"
      R"("h2d_bytes": {}, "d2h_bytes": {}, "peer_bytes": {}, "collective_seconds": {}, "waiting_seconds": {}}})",
      row.rank, row.steps, row.planned_peak_bytes, row.device_peak_bytes, row.stall_fraction, row.h2d_bytes,
      row.d2h_bytes, row.peer_bytes, row.collective_seconds, row.waiting_seconds);
}

std::vector<RankRow> rows_of_json_lines(std::string_view text) {
  std::vector<RankRow> rows;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    const nlohmann::json json = nlohmann::json::parse(line);
    rows.push_back({json.at("rank"), json.at("steps"), json.at("planned_peak_bytes"),
                    json.at("device_peak_bytes"), json.at("stall_fraction"), json.at("h2d_bytes"),
                    json.at("d2h_bytes"), json.at("peer_bytes"), json.at("collective_seconds"),
                    json.at("waiting_seconds")});
  });
  return rows;
}

std::string describe(const std::vector<RankRow>& rows) {
  if (rows.empty()) return {};
  Lines lines;
  constexpr const char* columns = "{:>12} {:>12} {:>8} {:>12} {:>12} {:>12} {:>14} {:>12}";
  lines.add("each device", columns, "planned peak", "peak", "stall", "in", "out", "from peers",
            "in collectives", "of it waits");
  for (const RankRow& row : rows) {
    const std::vector<std::string> cells = cells_of(row);
    lines.add(fmt::format("  rank {}", row.rank), columns, cells[0], cells[1], cells[2], cells[3], cells[4],
              cells[5], cells[6], cells[7]);
  }
  return std::move(lines).text();
}

RunTable table_of(const std::vector<RankRow>& rows) {
  RunTable table{.title = "Each device",
                 .columns = {"rank", "planned peak", "peak", "stall", "in per step", "out per step",
                             "from peers per step", "in collectives per step", "of it waiting for others"},
                 .rows = {}};
  for (const RankRow& row : rows) {
    std::vector<std::string> cells = cells_of(row);
    cells.insert(cells.begin(), std::to_string(row.rank));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace stowage::samples
