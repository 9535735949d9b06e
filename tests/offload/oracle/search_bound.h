// The search's state, and the least time that it may lead to.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "tests/offload/oracle/game.h"

namespace stowage::oracle {

inline constexpr double no_time = std::numeric_limits<double>::infinity();
inline constexpr int none = -1;

// What has been started, and when each lane is free: never before the start of the last job.
struct Label {
  double bound = 0;
  double compute = 0, h2d = 0, d2h = 0;
  std::uint64_t prefetched = 0, offloaded = 0;
  std::uint32_t root = 0;
  std::uint32_t parent = no_id;
  Bytes live = 0;                         // once all that has started has ended
  UpdateMask early = 0;                   // perhaps more, as long as buckets are fetched for the first time
  UpdateMask fetched = 0;                 // parameters
  UpdateMask updated = 0;                 // early, by the last job's start; or begun
  double updated_end = 0;                 // when the host has made these
  double compute_begin = 0, d2h_end = 0;  // of the last op's start; of the last offload
  std::int16_t done = 0;                  // compute jobs
  std::int16_t last_prefetch = none, last_offload = none;  // may still be running
  std::int16_t job = none;
};

inline bool started(std::uint64_t mask, int job) { return (mask >> job & 1U) != 0; }

inline double late_seconds(const Step& step, UpdateMask updates) {
  double sum = 0;
  for (std::size_t p = 0; p < step.updates.size(); ++p)
    if ((updates >> p & 1U) != 0) sum += step.updates[p].late_seconds;
  return sum;
}

// Makes those of the early updates `wanted` that may begin by `until`, in the order in which they may.
// begin_of(update): from when on.
template <class Begin>
void update_early(const Step& step, UpdateMask wanted, double until, Label& label, Begin&& begin_of) {
  for (wanted &= ~label.updated; wanted != 0;) {
    std::size_t next = step.updates.size();
    double begin = no_time;
    for (std::size_t p = 0; p < step.updates.size(); ++p) {
      if ((wanted >> p & 1U) == 0) continue;
      const double here = begin_of(step.updates[p]);
      if (here < begin) next = p;
      begin = std::min(begin, here);
    }
    if (begin > until || next == step.updates.size()) return;
    const double late = late_seconds(step, ~label.early);
    label.updated_end = std::max({label.updated_end, late, begin}) + step.updates[next].early_seconds;
    label.updated |= UpdateMask{1} << next;
    wanted &= ~label.updated;
  }
}

// The least that a period takes which goes on from a label: each lane in its turn without waiting for bytes.
class Bound {
 public:
  // `decided`: no more updates will be early.
  double of(const Step& step, const Label& label, bool decided);

 private:
  double with_early(const Step& step, const Label& label, UpdateMask early);
  double updates_end(const Step& step, Label label, UpdateMask early) const;

  std::vector<double> ready_;  // by offload: the earliest end
  bool held_ = false;          // a first prefetch, by updates
};

}  // namespace stowage::oracle
