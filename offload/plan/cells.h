// The automatic policy's plans, cell by cell.
//
// A *cell* is an amount of device memory and one of host memory, taken from a grid that depends on the graph
// and the machine and on no budget. Each cell has plans of its own that fit into it, which are made when a
// budget first asks for them. A budget takes the fastest plan of all cells that fit into it; a larger one has
// the same cells, and more. Cells are asked from the largest down, until the lower bound of the next one says
// that no plan in less memory can be faster, or limits of work end it (PlannerSettings).
//
// For one cell:
// 1. Each variant (order of micro-batches, bucket size, kind of replays) has its residency program solved for
//    a few shares of the memory (PlannerSettings::rooms), and the answers rounded to choices. Of graphs with
//    few items, where a rounded share is much, single changes of each variant's best choices and pairs of
//    them are tried, too.
// 2. Choices are scheduled under the cell's cap, and the schedule's time is estimated.
// 3. The schedules with the best estimates are placed, given their instructions, and simulated, until the
// next
//    estimate is no better than the best plan that the budget has.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "offload/plan/cell_candidates.h"

namespace stowage {

// A plan and what it counts when plans are compared: its predicted time and the price of its transfers' and
// replays' risk.
struct RankedPlan {
  Plan plan;
  double ranked_seconds = 0;
};
RankedPlan ranked(Plan plan, const Problem& problem, const PlannerSettings& settings);

class Cells {
 public:
  // Keeps references: the problems must outlive it. `minimum`: the smallest plan's arena, where the grid
  // begins; it ends at `need`. `for_bound`: the problem that lower bounds are made for.
  Cells(const std::vector<Problem>& problems, const Problem& for_bound, Bytes minimum, Bytes need,
        const PlannerSettings& settings);

  // Replaces `best` by the fastest plan of the cells that fit into the budget, if that ranks before it.
  void improve(const Budget& budget, std::optional<RankedPlan>& best);
  // The fewest host bytes found among plans that fit the device budget.
  Bytes least_host_bytes(Bytes device);

 private:
  struct Candidate {
    CellCandidate of;
    std::optional<std::optional<RankedPlan>> made;  // nothing inside: it has no place
  };
  struct Cell {
    Bytes device = 0;
    std::vector<Candidate> candidates;
    std::size_t sketches = 0;  // that it took to find them
    double most_seconds = 0;   // of those that were looked for
  };
  // By index of device memory, and of host memory: from unlimited (0) down, the last one least_host.
  using Key = std::pair<std::size_t, std::size_t>;

  void improve_by(Cell& cell, const Budget& budget, std::optional<RankedPlan>& best);
  // With all choices that may take less than that.
  Cell& cell(Key key, double most_seconds);
  // The least that each variant's program says of these amounts.
  double floor_seconds(Key key);
  // Whether the bound allows for plans of that device memory that take less.
  bool may_take_less(std::size_t index, double seconds);
  double bound_seconds(std::size_t index);
  std::optional<std::optional<RankedPlan>> plan_of(const Candidate& candidate, Bytes capacity,
                                                   double most_seconds) const;
  double wanted_seconds(const std::optional<RankedPlan>& best) const;

  const Problem& for_bound_;
  const PlannerSettings& settings_;
  std::vector<Bytes> devices_;  // rising
  std::vector<Bytes> hosts_;    // falling
  std::vector<std::unique_ptr<CellVariant>> variants_;
  std::map<Key, Cell> cells_;
  struct Floor {
    double seconds = 0;
    Bytes host_bytes = 0;  // that it takes
  };
  // By variant and index of device memory; then by index of host memory.
  std::map<std::pair<const CellVariant*, std::size_t>, std::map<std::size_t, Floor>> floors_;
  std::vector<std::optional<double>> bounds_;  // by index of device memory
};

}  // namespace stowage
