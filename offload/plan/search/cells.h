// The automatic policy's plans, cell by cell.
//
// A *cell* is an amount of device memory and one of host memory, taken from a grid that depends on the graph
// and the machine and on no budget. Each cell has plans of its own that fit into it, which are made when a
// budget first asks for them. A budget takes the fastest plan of all cells that fit into it; a larger budget
// has the same cells, and more. Cells are asked from the largest device memory down, until the lower bound of
// the next one says that no plan in less memory can be faster, or the search reaches its limits of work
// (PlannerSettings::most_work). With each device memory, cells are asked from the largest host memory down.
// A fastest plan that takes less host memory than the budget has is searched for again, in a budget of so
// much host memory, until that brings no faster one.
//
// For one cell:
// 1. Each variant (order of micro-batches, bucket size, kind of replays) solves its residency program for a
//    few shares of the cell's device memory (PlannerSettings::rooms) and rounds the answers to choices. In
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
  // Keeps references: problems and settings must outlive it. One variant for each of `problems`. The grid of
  // device memory goes from `minimum`, the smallest plan's arena, to `need`. `for_bound`: the problem that
  // lower bounds are made for.
  Cells(const std::vector<Problem>& problems, const Problem& for_bound, Bytes minimum, Bytes need,
        const PlannerSettings& settings);

  // Replaces `best` by the fastest plan of the cells that fit into the budget, if that one is faster,
  // whichever budget it was made for. `budget.device` is the arena's bytes, without Machine::overhead_bytes.
  // Returns whether the search came to its end rather than to its limits of work.
  bool improve(const Budget& budget, std::optional<RankedPlan>& best);
  // A plan that fits the budget, the first that a search finds; none where none finds one.
  std::optional<RankedPlan> any(const Budget& budget);
  // A plan of few host bytes whose arena is at most `device`: the first that the choices for the fewest host
  // bytes lead to. None where no plan was found.
  std::optional<RankedPlan> least_host_plan(Bytes device);
  // Ops of all schedules that the searches have made.
  std::size_t work() const { return all_work_; }

 private:
  // Whether a candidate has become a plan.
  struct Outcome {
    // False: not tried yet, or given up because it was not going to beat the best plan of the budget that
    // asked. A later budget tries it again.
    bool is_final = false;
    std::optional<RankedPlan> plan{};  // none, if final: no schedule of it finds places
  };
  struct Candidate {
    CellCandidate of;
    Outcome outcome{};
  };
  struct Cell {
    Bytes device = 0;
    std::vector<Candidate*> candidates;
    CellSearch search;
    double most_seconds = 0;  // choices with a longer time by the program were not looked for
  };
  // An index into devices_, and one into hosts_; hosts_.size() stands for as few host bytes as possible.
  using Key = std::pair<std::size_t, std::size_t>;

  // Ops of schedules that one search has made: for the largest host memory that fits, and for less.
  struct Work {
    std::size_t rows = 0, columns = 0;
    bool is_limited = false;  // something was left out because there was so much of it
  };
  std::size_t work_of(const Cell& cell) const;
  enum class Search : std::uint8_t {
    fastest,
    again,  // one for a larger budget has been made: it ends by PlannerSettings::patience alone
    any,    // the first plan ends it
  };
  // One search, from the largest cell that fits down.
  bool improve_within(const Budget& budget, Search search, std::optional<RankedPlan>& best);
  // Every plan that has been made.
  void offer_known(const Budget& budget, std::optional<RankedPlan>& best) const;
  // The plans of one device memory (an index). Adds to `work` what it takes.
  bool improve_in_row(std::size_t device, const Budget& budget, Search search,
                      std::optional<RankedPlan>& best, Work& work);
  void improve_by(Cell& cell, const Budget& budget, std::optional<RankedPlan>& best);
  // The cell, with candidates for all plans that may take less than `most_seconds`. Made when first asked
  // for, and made anew for a larger `most_seconds`.
  Cell& cell(Key key, double most_seconds);
  // The shortest time that any variant's program gives for these amounts of memory.
  double floor_seconds(Key key);
  // Whether the lower bound lets plans in that device memory (an index) and that host memory take less.
  bool may_take_less(std::size_t index, Bytes host, double seconds);
  Outcome outcome_of(const Candidate& candidate, Bytes capacity, double most_seconds);
  double wanted_seconds(const std::optional<RankedPlan>& best) const;

  std::size_t all_work_ = 0;
  const Problem& for_bound_;
  const PlannerSettings& settings_;
  std::vector<Bytes> devices_;  // rising
  std::vector<Bytes> hosts_;    // falling
  std::vector<std::unique_ptr<CellVariant>> variants_;
  std::map<Key, Cell> cells_;
  // By index of device memory: the candidates of its cells, which share what is found out about them.
  std::map<std::size_t, std::vector<std::unique_ptr<Candidate>>> candidates_;
  std::map<std::size_t, TriedChoices> tried_;  // by index of device memory, too
  KnownPlaces places_;
  struct Floor {
    double seconds = 0;
    Bytes host_bytes = 0;  // that the program's answer takes
  };
  // By variant and index of device memory; then by index of host memory.
  std::map<std::pair<const CellVariant*, std::size_t>, std::map<std::size_t, Floor>> floors_;
  std::map<Bytes, std::map<std::size_t, double>> bounds_;  // by host memory and index of device memory
};

// The fewest host bytes that a step's plans take within some device memory: what a refusal names.
struct FewestHost {
  std::vector<RankedPlan> plans;  // that the search found
  Bytes bytes = unlimited;        // the fewest of all; unlimited: there is no plan
  // The search ended before a budget of a hundredth less was searched in vain: fewer may do.
  bool at_most = false;
};

// Searches for the plan without a limit of host memory, then in budgets of less than the fewest bytes so far,
// by steps that double until one is searched in vain, then between the two. Ends with three times the work of
// the first search. `cells` has been asked nothing before, so that the answer depends on `device`, an arena's
// bytes, alone: then every budget of host memory from `bytes` up has a plan. `others`: host bytes of plans
// that fit besides.
FewestHost fewest_host(Cells& cells, Bytes device, const std::vector<Bytes>& others);

}  // namespace stowage
