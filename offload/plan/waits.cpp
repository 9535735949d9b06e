#include "offload/plan/waits.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>

namespace stowage {
namespace {

// By lane: how many of its instructions are known to have ended.
using Clock = std::array<std::uint32_t, lane_roles>;

void join(Clock& clock, const Clock& other) {
  for (std::size_t lane = 0; lane < lane_roles; ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

class Reducer {
 public:
  Reducer(Plan& plan, const std::vector<std::vector<Wait>>& wanted)
      : plan_(plan),
        wanted_(wanted),
        number_(plan.instructions.size()),
        now_(plan.instructions.size()),
        before_(plan.instructions.size()) {
    Clock count{};
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) number_[id] = ++count[lane(id)];
  }

  void run() {
    reduce_this_step();
    reduce_step_before();
  }

 private:
  std::size_t lane(InstructionId id) const { return static_cast<std::size_t>(plan_.instructions[id].lane); }

  std::vector<InstructionId> latest_first(InstructionId id, std::uint32_t steps_back) const {
    std::vector<InstructionId> ids;
    for (const Wait& wait : wanted_[id])
      if (wait.steps_back == steps_back) ids.push_back(wait.instruction);
    std::sort(ids.begin(), ids.end(), std::greater<>());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  // What ended before instruction `id` starts, then (after its own end) including itself.
  void reduce_this_step() {
    std::array<InstructionId, lane_roles> previous;
    previous.fill(no_id);
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      Clock clock{};
      if (previous[lane(id)] != no_id) clock = now_[previous[lane(id)]];
      if (id > plan_.gate) join(clock, now_[plan_.gate]);
      plan_.instructions[id].waits.clear();
      for (InstructionId on : latest_first(id, 0)) {
        if (clock[lane(on)] >= number_[on]) continue;
        join(clock, now_[on]);
        plan_.instructions[id].waits.push_back({on, 0});
      }
      clock[lane(id)] = number_[id];
      now_[id] = clock;
      previous[lane(id)] = id;
    }
  }

  // What of the step before has ended: all that its gate comes after, and its own lane.
  void reduce_step_before() {
    std::array<InstructionId, lane_roles> previous;
    previous.fill(no_id);
    std::array<Clock, lane_roles> lane_end{};
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) lane_end[lane(id)] = now_[id];
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      Clock clock = now_[plan_.gate];
      join(clock, previous[lane(id)] != no_id ? before_[previous[lane(id)]] : lane_end[lane(id)]);
      for (const Wait& wait : plan_.instructions[id].waits) join(clock, before_[wait.instruction]);
      if (id > plan_.gate) join(clock, before_[plan_.gate]);
      for (InstructionId on : latest_first(id, 1)) {
        if (clock[lane(on)] >= number_[on]) continue;
        join(clock, now_[on]);
        plan_.instructions[id].waits.push_back({on, 1});
      }
      before_[id] = clock;
      previous[lane(id)] = id;
    }
  }

  Plan& plan_;
  const std::vector<std::vector<Wait>>& wanted_;
  std::vector<std::uint32_t> number_;  // by instruction: 1-based place in its lane
  std::vector<Clock> now_;             // by instruction: of the same step, itself included
  std::vector<Clock> before_;          // by instruction: of the step before
};

}  // namespace

void reduce_waits(Plan& plan, const std::vector<std::vector<Wait>>& wanted) { Reducer(plan, wanted).run(); }

}  // namespace stowage
