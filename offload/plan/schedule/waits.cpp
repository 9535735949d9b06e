#include "offload/plan/schedule/waits.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>

namespace stowage {
namespace {

// Counts, by lane, the instructions that are known to have ended.
using Clock = std::array<std::uint32_t, lane_roles>;

void join(Clock& clock, const Clock& other) {
  for (std::size_t lane = 0; lane < lane_roles; ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

// The wanted waits of each waiter, of the same step or of the step before: each instruction once,
// the latest first.
class WaitedFor {
 public:
  WaitedFor(std::size_t instructions, const std::vector<WantedWait>& wanted, std::uint32_t steps_back)
      : begins_(instructions + 1, 0), ends_(instructions) {
    for (const WantedWait& wait : wanted)
      if (wait.on.steps_back == steps_back) ++begins_[wait.waiter + 1];
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    std::copy(begins_.begin(), begins_.end() - 1, ends_.begin());
    ids_.resize(begins_.back());
    for (const WantedWait& wait : wanted)
      if (wait.on.steps_back == steps_back) ids_[ends_[wait.waiter]++] = wait.on.instruction;
    for (std::size_t i = 0; i < instructions; ++i) {
      const auto first = at(begins_[i]), last = at(ends_[i]);
      std::sort(first, last, std::greater<>());
      ends_[i] = begins_[i] + static_cast<std::size_t>(std::unique(first, last) - first);
    }
  }

  std::span<const InstructionId> of(InstructionId waiter) const {
    return {ids_.data() + begins_[waiter], ends_[waiter] - begins_[waiter]};
  }

 private:
  std::vector<InstructionId>::iterator at(std::size_t index) {
    return ids_.begin() + static_cast<std::ptrdiff_t>(index);
  }

  std::vector<std::size_t> begins_, ends_;  // ranges of waits, by waiter
  std::vector<InstructionId> ids_;
};

class Reducer {
 public:
  Reducer(Plan& plan, const std::vector<WantedWait>& wanted)
      : plan_(plan),
        this_step_(plan.instructions.size(), wanted, 0),
        step_before_(plan.instructions.size(), wanted, 1),
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

  // Here `clock` counts the instructions that have ended before `id` starts; at the end, `id` itself as well.
  void reduce_this_step() {
    std::array<InstructionId, lane_roles> previous;
    previous.fill(no_id);
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      Clock clock{};
      if (previous[lane(id)] != no_id) clock = now_[previous[lane(id)]];
      if (id > plan_.gate) join(clock, now_[plan_.gate]);
      plan_.instructions[id].waits.clear();
      for (InstructionId on : this_step_.of(id)) {
        if (clock[lane(on)] >= number_[on]) continue;
        join(clock, now_[on]);
        plan_.instructions[id].waits.push_back({on, 0});
      }
      clock[lane(id)] = number_[id];
      now_[id] = clock;
      previous[lane(id)] = id;
    }
  }

  // Here `clock` counts the instructions of the step before that have ended when `id` starts. At first the
  // clock holds all instructions before that step's gate, and all of the same lane.
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
      for (InstructionId on : step_before_.of(id)) {
        if (clock[lane(on)] >= number_[on]) continue;
        join(clock, now_[on]);
        plan_.instructions[id].waits.push_back({on, 1});
      }
      before_[id] = clock;
      previous[lane(id)] = id;
    }
  }

  Plan& plan_;
  WaitedFor this_step_, step_before_;
  std::vector<std::uint32_t> number_;  // by instruction: 1-based place in its lane
  std::vector<Clock> now_;  // by instruction: instructions of its own step that have ended, itself included
  std::vector<Clock> before_;  // by instruction: instructions of the step before that have ended
};

class LaneWaits {
 public:
  LaneWaits(const BucketLayout& layout, const Draft& draft, const Plan& plan, std::vector<WantedWait>& wanted)
      : layout_(layout), draft_(draft), plan_(plan), wanted_(wanted), newest_(draft.lifetimes.size()) {}

  void add() {
    for_each_touch([this](InstructionId id, LifetimeId touched, const BucketOperand& operand) {
      Newest& newest = newest_[touched];
      want(id, operand, newest, 0);
      const std::size_t lane = index_of(plan_.instructions[id].lane);
      if (operand.writes) newest.writer.at(lane) = id;
      if (operand.reads) newest.reader.at(lane) = id;
    });
    for_each_touch([this](InstructionId id, LifetimeId touched, const BucketOperand& operand) {
      if (draft_.lifetimes[touched].resident) want(id, operand, newest_[touched], 1);
    });
  }

 private:
  using OnLanes = std::array<InstructionId, lane_roles>;
  static constexpr OnLanes nowhere() {
    OnLanes lanes{};
    lanes.fill(no_id);
    return lanes;
  }
  struct Newest {
    OnLanes writer = nowhere(), reader = nowhere();
  };

  void want(InstructionId id, const BucketOperand& operand, const Newest& newest, std::uint32_t steps_back) {
    const auto want_each = [&](const OnLanes& lanes) {
      for (const InstructionId on : lanes)
        if (on != no_id && (on != id || steps_back > 0)) wanted_.push_back({id, {on, steps_back}});
    };
    want_each(newest.writer);
    if (operand.writes) want_each(newest.reader);
  }

  template <class Visit>
  void for_each_touch(Visit&& visit) const {
    Position position = 0;
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      if (!runs_on_device(plan_.instructions[id])) continue;
      for (const LifetimeId use : draft_.uses.at(position++))
        for (const BucketOperand& operand : layout_.operands_of(plan_.instructions[id].op))
          if (operand.bucket == draft_.lifetimes[use].bucket) visit(id, use, operand);
    }
  }

  const BucketLayout& layout_;
  const Draft& draft_;
  const Plan& plan_;
  std::vector<WantedWait>& wanted_;
  std::vector<Newest> newest_;  // by lifetime: its newest uses
};

}  // namespace

void reduce_waits(Plan& plan, const std::vector<WantedWait>& wanted) { Reducer(plan, wanted).run(); }

void want_lane_waits(const BucketLayout& layout, const Draft& draft, const Plan& plan,
                     std::vector<WantedWait>& wanted) {
  LaneWaits(layout, draft, plan, wanted).add();
}

}  // namespace stowage
