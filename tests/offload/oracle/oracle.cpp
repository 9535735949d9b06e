#include "tests/offload/oracle/oracle.h"

#include "tests/offload/oracle/search.h"
#include "tests/offload/oracle/witness.h"

namespace stowage::oracle {

Answer ask(const Game& game, const Graph& graph, const Budget& budget, const Effort& effort,
           const Choice* only) {
  Answer answer;
  int schedules = 0;
  auto found = [&](const Schedule& schedule) {
    if (schedules++ == 0) answer.choice = schedule.choice;
    bool complete = true;
    answer.plan = make_witness(graph, schedule, budget.device, complete);
    if (answer.plan) answer.choice = schedule.choice;
    answer.exact = answer.plan && schedules == 1;
    return answer.plan || schedules == effort.schedules;
  };
  // Offsets are multiples of the alignment, so items fill whole units of it, but perhaps for the topmost.
  const SearchResult result =
      search(game, {align_up(budget.device, alignment), budget.host}, effort.labels, found, only);
  answer.lower = result.lower;
  answer.labels = result.labels;
  return answer;
}

}  // namespace stowage::oracle
