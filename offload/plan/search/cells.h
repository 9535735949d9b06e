// The automatic policy's plans, cell by cell.
//
// A *cell* is an amount of device memory and one of host memory, taken from a grid that depends on the graph
// and the machine, not on the budget. Each cell has plans of its own that fit into it; they are made when a
// budget first asks for them. A budget takes the fastest plan of all cells that fit into it; a larger budget
// has the same cells, and more. Cells are asked from the largest device memory down, until the lower bound of
// the next cell says that no plan in less memory can be faster, or the search reaches its limits of work
// (PlannerSettings::most_work). With each device memory, cells are asked from the largest host memory down.
// If the fastest plan takes less host memory than the budget has, a budget of just that much host memory is
// searched next, until that brings no faster plan.
//
// The plans of one cell are made in three steps:
// 1. Each variant (order of micro-batches, bucket size, kind of replays) solves its residency program for a
//    few fractions of the cell's device memory (PlannerSettings::rooms) and rounds the answers to choices. In
//    graphs with few items, where rounding changes much, single changes of each variant's best choices and
//    pairs of them are tried, too.
// 2. Choices are scheduled under the cell's cap, and the schedule's time is estimated.
// 3. The schedules are placed, given their instructions and simulated, the best estimate first, until the
//    next estimate is no better than the best plan that the budget has.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "offload/plan/schedule/places.h"
#include "offload/plan/search/cell_candidates.h"

namespace stowage {

// A plan with the time by which plans are compared: its predicted time plus the price of its transfers and
// replays (PlannerSettings).
struct RankedPlan {
  Plan plan;
  double ranked_seconds = 0;
};
RankedPlan ranked(Plan plan, const Problem& problem, const PlannerSettings& settings);

class Cells {
 public:
  // Keeps references: problems and settings must outlive it. Each of `problems` becomes a variant. The grid
  // of device memory goes from `minimum`, the smallest plan's arena, to `need`. `for_bound`: the problem that
  // lower bounds are made for.
  Cells(const std::vector<Problem>& problems, const Problem& for_bound, Bytes minimum, Bytes need,
        const PlannerSettings& settings);

  // Replaces `best` by the fastest plan of the cells that fit into the budget if that plan is faster,
  // whichever budget it was made for. `budget.device`: bytes of the arena, without Machine::overhead_bytes.
  // Returns whether the search came to its end rather than to its limits of work.
  bool improve(const Budget& budget, std::optional<RankedPlan>& best);
  // Returns the first plan that a search for the budget finds, or none. `patience`: in
  // place of the settings' own.
  std::optional<RankedPlan> any(const Budget& budget, std::optional<std::size_t> patience = {});
  // Returns a plan of few host bytes whose arena is at most `device`: the first plan that the choices for the
  // fewest host bytes lead to. Returns none if no plan is found.
  std::optional<RankedPlan> least_host_plan(Bytes device);
  // Returns the number of ops in all schedules that the searches have made.
  std::size_t work() const { return all_work_; }

 private:
  // The result of making a plan of a candidate.
  struct Outcome {
    // False: not tried yet, or given up because it was not going to beat the best plan of the budget that
    // asked. A later budget tries it again.
    bool is_final = false;
    std::optional<RankedPlan> plan{};  // nullopt in a final cell: no schedule of the candidate finds places
  };
  struct Candidate {
    CellCandidate of;
    Outcome outcome{};
  };
  struct Cell {
    Bytes device = 0;
    std::vector<Candidate*> candidates;
    CellSearch search;
    double most_seconds = 0;  // choices that the program gives a longer time were not looked for
  };
  // An index into devices_ and an index into hosts_; hosts_.size() stands for as few host bytes as possible.
  using Key = std::pair<std::size_t, std::size_t>;

  // Ops of the schedules that one search has made: for the largest host memory that fits (rows), and
  // for less (columns).
  struct Work {
    std::size_t rows = 0, columns = 0;
    bool is_limited = false;  // a limit of work cut the search short
  };
  std::size_t work_of(const Cell& cell) const;
  enum class Search : std::uint8_t {
    fastest,
    again,  // a search after one with a larger budget; PlannerSettings::patience alone ends it
    any,    // a search that ends with the first plan
  };
  // Makes one search, from the largest cell that fits down.
  bool improve_within(const Budget& budget, Search search, std::size_t patience,
                      std::optional<RankedPlan>& best);
  // Replaces `best` by the fastest of all plans made so far that fit into the budget.
  void offer_known(const Budget& budget, std::optional<RankedPlan>& best) const;
  // Asks the cells of one device memory (an index). Adds the ops that it schedules to `work`. Returns whether
  // even fewer host bytes may bring a faster plan.
  bool improve_in_row(std::size_t device, const Budget& budget, Search search,
                      std::optional<RankedPlan>& best, Work& work);
  void improve_by(Cell& cell, const Budget& budget, std::optional<RankedPlan>& best);
  // Returns the cell with candidates for all plans that may take less than `most_seconds`. Makes it when it
  // is first asked for, and anew for a larger `most_seconds`.
  Cell& cell(Key key, double most_seconds);
  // Returns the shortest time that any variant's program gives for these amounts of memory.
  double floor_seconds(Key key);
  // Returns whether the lower bound lets plans in that device memory (an index) and that host memory take
  // less than `seconds`.
  bool may_take_less(std::size_t index, Bytes host, double seconds);
  Outcome outcome_of(const Candidate& candidate, Bytes capacity, double most_seconds);
  double wanted_seconds(const std::optional<RankedPlan>& best) const;

  std::size_t all_work_ = 0;
  const Problem& for_bound_;
  const PlannerSettings& settings_;
  std::vector<Bytes> devices_;  // amounts of device memory, rising
  std::vector<Bytes> hosts_;    // amounts of host memory, falling
  std::vector<std::unique_ptr<CellVariant>> variants_;
  std::map<Key, Cell> cells_;
  // Indexed by device memory: the candidates of its cells, which share what is found out about them.
  std::map<std::size_t, std::vector<std::unique_ptr<Candidate>>> candidates_;
  std::map<std::size_t, TriedChoices> tried_;  // choices tried, by index of device memory
  KnownPlaces places_;
  struct Floor {
    double seconds = 0;
    Bytes host_bytes = 0;  // host bytes of the program's answer
  };
  // Indexed by variant and device memory, then by host memory.
  std::map<std::pair<const CellVariant*, std::size_t>, std::map<std::size_t, Floor>> floors_;
  // Lower bounds by host memory and index of device memory.
  std::map<Bytes, std::map<std::size_t, double>> bounds_;
};

// The fewest host bytes that a step's plans take within some device memory. An Infeasible
// answer names these bytes.
struct FewestHost {
  std::vector<RankedPlan> plans;  // all plans that the search found
  Bytes bytes = unlimited;        // fewest host bytes of all plans; unlimited: there is no plan
  // True: the search ended before a budget of a hundredth less was searched in vain, so fewer bytes may do.
  bool at_most = false;
};

// Searches for the plan without a limit of host memory, then in budgets below the fewest bytes so far, by
// steps that double until a budget is searched in vain, then between this budget and the fewest bytes. Ends
// with three times the work of the first search. Requires that `cells` has been asked nothing before, so that
// the answer depends on `device` (an arena's bytes) alone. Every budget of host memory from FewestHost::bytes
// up then has a plan. `others`: host bytes of other plans that fit into `device`.
FewestHost fewest_host(Cells& cells, Bytes device, const std::vector<Bytes>& others);

}  // namespace stowage
