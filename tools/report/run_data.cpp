#include "tools/report/run_data.h"

#include <fmt/format.h>

#include <cmath>

#include "stowage/error.h"

namespace stowage::report {
namespace {

using nlohmann::json;

bool in_order(const RunColumn& column) {
  return column.first <= column.last && std::isfinite(column.least) && std::isfinite(column.most) &&
         column.least <= column.mean && column.mean <= column.most;
}

void require_line(const RunChart& chart, const RunLine& line) {
  for (std::size_t i = 0; i < line.columns.size(); ++i) {
    const RunColumn& column = line.columns[i];
    const bool follows = i == 0 || line.columns[i - 1].last < column.first;
    if (in_order(column) && follows && !(chart.logarithmic && column.least <= 0)) continue;
    throw InvalidInput(fmt::format(
        "column {} of '{}' in the chart '{}' is of steps {} to {} with {} <= {} <= {}: give columns "
        "with rising steps and finite values in order, above 0 on a logarithmic axis",
        i, line.name, chart.title, column.first, column.last, column.least, column.mean, column.most));
  }
}

json columns_json(const std::vector<RunColumn>& columns) {
  json list = json::array();
  for (const RunColumn& column : columns) {
    list.push_back(column.first);
    list.push_back(column.last);
    list.push_back(column.least);
    list.push_back(column.mean);
    list.push_back(column.most);
  }
  return list;
}

json chart_json(const RunChart& chart) {
  json lines = json::array();
  for (const RunLine& line : chart.lines)
    lines.push_back({{"name", line.name}, {"points", line.points}, {"columns", columns_json(line.columns)}});
  return {{"title", chart.title}, {"logarithmic", chart.logarithmic}, {"lines", std::move(lines)}};
}

}  // namespace

void require_run(const RunHistory& run) {
  for (const RunChart& chart : run.charts)
    for (const RunLine& line : chart.lines) require_line(chart, line);
}

json run_data(const RunHistory& run) {
  json charts = json::array();
  for (const RunChart& chart : run.charts) charts.push_back(chart_json(chart));
  return charts;
}

}  // namespace stowage::report
