// plan_report: a plan as one HTML page for people: the memory map over the step, the lanes, where every
// bucket lives, and what other budgets would give. A pure function; the page needs no network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

// The planner's answer to a device budget.
struct CurvePoint {
  Bytes budget_bytes = 0;  // above 0; `unlimited` for no limit
  double step_seconds = 0;
  double lower_bound_seconds = 0;
  bool feasible = true;  // false: the smallest budget that works is larger, and the seconds mean nothing
};

// Values of consecutive steps, or of one: a run of a million steps is shown in some hundred columns.
struct RunColumn {
  std::uint64_t first = 0;  // number of the first step, counted from 1
  std::uint64_t last = 0;
  double least = 0;
  double mean = 0;
  double most = 0;
};

struct RunLine {
  std::string name;
  bool points = false;  // values measured now and then, such as evaluations, drawn as points
  std::vector<RunColumn> columns{};
};

struct RunChart {
  std::string title;         // "step time": values are seconds
  bool logarithmic = false;  // true: values must be above 0
  std::vector<RunLine> lines{};
};

// Rows have a cell for each column.
struct RunTable {
  std::string title;
  std::vector<std::string> columns{};
  std::vector<std::vector<std::string>> rows{};
};

// The training under the plan, shown above it.
struct RunHistory {
  struct Fact {
    std::string label;
    std::string value;
    std::string note{};
  };
  struct Group {
    std::string title;
    std::vector<Fact> facts{};
  };
  std::string failure{};  // the error that ended the run, in red at the top; empty: none
  std::vector<Group> groups{};
  std::vector<RunTable> tables{};
  std::vector<RunChart> charts{};
};

struct ReportOptions {
  std::string name{};               // name of the model; empty: "training step"
  std::string machine_name{};       // e.g. MachineFile::device; may be empty
  Budget budget{};                  // budget that the plan was made for
  std::vector<CurvePoint> curve{};  // points in any order; empty: the report has no such section
  std::optional<RunHistory> run{};
};

// Returns a self-contained HTML page in UTF-8: styles, scripts and data inside, nothing is loaded. Times are
// those of simulate() on `machine`. Names of the graph, of the plan and in `options` may be hostile text. The
// data is JSON in the element "plan-data"; tools/report/report_data.h says what it holds. Throws InvalidInput
// for a plan that names ops, tensors, buckets, lifetimes, instructions, positions or arena bytes which are
// not there, for a machine on which the step takes no finite time, for a point of the curve without a budget
// or finite times, and for columns of a run whose steps or values are not in order, or not finite.
std::string plan_report(const Graph& graph, const Plan& plan, const Machine& machine,
                        const ReportOptions& options = {});

}  // namespace stowage
