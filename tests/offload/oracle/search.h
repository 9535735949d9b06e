// The fastest way through one period, over all choices at once: best-first search (Hart, Nilsson and Raphael,
// "A Formal Basis for the Heuristic Determination of Minimum Cost Paths") over the order in which jobs start.
//
// Every schedule is a list of its jobs by start time. So the search builds such lists: the next job, of any
// lane that may start one, starts as early as its lane, the job before it in the list, what it waits for and
// free bytes allow; starting later gains nothing that another list does not have. Bytes count from the start
// of what first touches a stay to the end of what last does, and their sum stays below the limit; that they
// also find places is for placement.h to say. Of two lists of the same jobs, one whose lanes are all free no
// later than the other's is at least as good, whatever follows.
//
// Updates on the host are not in the list. Late ones go in the order of the first prefetches that they hold
// up, early ones in the order in which they may begin. An update is early only where that lets a prefetch
// begin sooner: as a late one it takes less, and the gate waits for either. So it is decided when a first
// prefetch would have to wait for the host: it waits, or some of the updates that it waits for are early.
#pragma once

#include <functional>
#include <vector>

#include "tests/offload/oracle/game.h"

namespace stowage::oracle {

struct Span {
  double begin = 0, end = 0;
};
struct Schedule {
  Choice choice;
  Step step;
  std::vector<Span> compute, prefetches, offloads;  // by job
  std::vector<int> order;  // all jobs by start: compute i is 3i, prefetch i is 3i + 1, offload i is 3i + 2
  std::vector<int> early;  // parameters, in the order of their early updates
  double seconds = 0;      // of the period
};

struct SearchResult {
  bool complete = true;  // false: stopped at `most_labels`
  double lower = 0;      // no schedule is faster; infinite when there is none
  std::size_t labels = 0;
};

// Calls `found` with schedules from the fastest on until it returns true; after the first, some that are no
// better than others may be left out. `limit.device` is a sum of aligned bytes. With `only` no
// other choice is looked at, of early updates neither.
SearchResult search(const Game& game, const Budget& limit, std::size_t most_labels,
                    const std::function<bool(const Schedule&)>& found, const Choice* only = nullptr);

}  // namespace stowage::oracle
