#include "offload/plan/schedule/fluid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace stowage {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double alike = 1e-12;  // relative to the simulated time; smaller differences are rounding

// Instructions are counted by lane: instruction `index` of step s has number s * length + index in its lane.
using Count = std::int64_t;

// Holds as soon as `lane` has done `done` instructions, counted from the begin of the waiting instruction's
// step. 0 or less: the instruction to wait for is in the step before.
struct Condition {
  std::size_t lane;
  Count done;
};

// The plan in flat arrays: instructions by lane, conditions by instruction.
class Program {
 public:
  Program(const Plan& plan, const std::vector<WorkTime>& work)
      : work(work), lane_of(plan.instructions.size()) {
    for (InstructionId id = 0; id < lane_of.size(); ++id) {
      lane_of[id] = static_cast<std::size_t>(plan.instructions[id].lane);
      index_of.push_back(length(lane_of[id]));
      order.at(lane_of[id]).push_back(id);
    }
    gate = {lane_of[plan.gate], index_of[plan.gate] + 1};
    for (InstructionId id = 0; id < lane_of.size(); ++id) {
      first_condition.push_back(conditions.size());
      add(gate, 1);  // the gate of the step before
      if (id > plan.gate) add(gate, 0);
      for (const Wait& wait : plan.instructions[id].waits)
        add({lane_of[wait.instruction], index_of[wait.instruction] + 1}, wait.steps_back == 0 ? 0 : 1);
    }
    first_condition.push_back(conditions.size());
  }

  Count length(std::size_t lane) const { return static_cast<Count>(order.at(lane).size()); }

  const std::vector<WorkTime>& work;  // work of each instruction
  std::vector<std::size_t> lane_of;
  std::vector<Count> index_of;
  std::array<std::vector<InstructionId>, lane_roles> order;
  std::vector<Condition> conditions;  // conditions of all instructions, one after another
  std::vector<std::size_t> first_condition;
  Condition gate{};

 private:
  void add(Condition condition, Count steps_back) {
    conditions.push_back({condition.lane, condition.done - steps_back * length(condition.lane)});
  }
};

enum class Stage : std::uint8_t { waiting, latency, working };

struct LaneState {
  Count done = 0;   // instructions done, of all steps
  Count index = 0;  // index, in its step, of the running or else the next instruction
  Count step = 0;   // step of that instruction
  InstructionId id = no_id;
  std::size_t condition = 0;  // that instruction's first condition that is not known to hold
  Stage stage = Stage::waiting;
  double begin = 0;
  double event = infinite;  // time at which the latency, or the work at the present speed, ends
  double left = 0;          // seconds of work left at full speed, as of `since`
  double since = 0;
  double speed = 1;
};

// Lanes at a gate; times and instructions are counted from that gate. Two gates with equal states are
// followed by equal steps.
struct State {
  std::array<Count, lane_roles> done{};
  std::array<Stage, lane_roles> stage{};
  std::array<double, lane_roles> left{};  // seconds until a latency ends, or of work at full speed
};

class Fluid {
 public:
  Fluid(const Plan& plan, const std::vector<WorkTime>& work, const LaneSpeeds& speeds)
      : program_(plan, work), speeds_(speeds) {
    for (std::size_t l = 0; l < lane_roles; ++l) prepare(l);
  }

  std::optional<Timeline> run() {
    while (!over()) {
      for (std::size_t l = 0; l < lane_roles; ++l) start(l);
      set_speeds();
      double next = infinite;
      for (const LaneState& lane : lanes_) next = std::min(next, lane.event);
      if (!std::isfinite(next)) return std::nullopt;
      time_ = next;
      for (std::size_t l = 0; l < lane_roles; ++l)
        if (lanes_[l].event <= time_) pass(l);
      if (gates_ < steps_to_settle && reached(program_.gate, gates_)) pass_gate();
    }
    return alike_ ? settled_timeline() : last_timeline();
  }

 private:
  bool reached(const Condition& condition, Count step) const {
    return lanes_[condition.lane].done >= condition.done + step * program_.length(condition.lane);
  }
  // True if every lane has done all its instructions of the first `steps` steps.
  bool finished(Count steps) const {
    for (std::size_t l = 0; l < lane_roles; ++l)
      if (lanes_[l].done < steps * program_.length(l)) return false;
    return true;
  }
  bool over() const { return alike_ || (gates_ == steps_to_settle && finished(steps_to_settle)); }

  // Makes the lane's next instruction the one that is to start. Requires that the lane's last one has ended.
  void prepare(std::size_t l) {
    LaneState& lane = lanes_[l];
    lane.stage = Stage::waiting;
    lane.event = infinite;
    if (program_.length(l) == 0) return;
    if (lane.index == program_.length(l)) {
      lane.index = 0;
      ++lane.step;
    }
    lane.id = program_.order[l][static_cast<std::size_t>(lane.index)];
    lane.condition = program_.first_condition[lane.id];
  }

  void start(std::size_t l) {
    LaneState& lane = lanes_[l];
    if (lane.stage != Stage::waiting || lane.id == no_id) return;
    for (; lane.condition < program_.first_condition[lane.id + 1]; ++lane.condition)
      if (!reached(program_.conditions[lane.condition], lane.step)) return;
    lane.begin = time_;
    const double latency = program_.work[lane.id].latency;
    if (latency <= 0) return start_work(lane);
    lane.stage = Stage::latency;
    lane.event = time_ + latency;
  }

  void start_work(LaneState& lane) const {
    const WorkTime& work = program_.work[lane.id];
    lane.stage = Stage::working;
    lane.left = work.seconds - work.latency;
    lane.since = time_;
    lane.speed = 1;
    lane.event = lane.begin + work.seconds;
  }

  double left(const LaneState& lane) const {
    return std::max(0.0, lane.left - (time_ - lane.since) * lane.speed);
  }

  // Gives each working lane its speed. A lane whose speed does not change is left alone: where lanes do not
  // slow each other, no time gathers rounding errors.
  void set_speeds() {
    LaneMask working = 0;
    for (std::size_t l = 0; l < lane_roles; ++l)
      if (lanes_[l].stage == Stage::working) working |= LaneMask{1} << l;
    for (std::size_t l = 0; l < lane_roles; ++l) {
      LaneState& lane = lanes_[l];
      const double speed = speeds_.of(working, static_cast<LaneRole>(l));
      if (lane.stage != Stage::working || lane.speed == speed) continue;
      lane.left = left(lane);
      lane.since = time_;
      lane.speed = speed;
      lane.event = time_ + lane.left / speed;
    }
  }

  void pass(std::size_t l) {
    LaneState& lane = lanes_[l];
    if (lane.stage == Stage::latency) return start_work(lane);
    if (lane.step < steps_to_settle) {  // later steps run only to slow other lanes
      std::vector<Interval>& intervals = intervals_[static_cast<std::size_t>(lane.step)];
      intervals.resize(program_.work.size());
      intervals[lane.id] = {lane.begin, time_};
    }
    ++lane.done;
    ++lane.index;
    prepare(l);
  }

  void pass_gate() {
    const State before = state_;
    gate_times_[static_cast<std::size_t>(gates_)] = time_;
    ++gates_;
    state_ = state();
    alike_ = gates_ > 1 && finished(gates_ - 1) && same(before, state_);
  }

  State state() const {
    State state;
    for (std::size_t l = 0; l < lane_roles; ++l) {
      const LaneState& lane = lanes_[l];
      state.done.at(l) = lane.done - gates_ * program_.length(l);
      state.stage.at(l) = lane.stage;
      if (lane.stage == Stage::latency) state.left.at(l) = lane.event - time_;
      if (lane.stage == Stage::working) state.left.at(l) = left(lane);
    }
    return state;
  }

  bool same(const State& a, const State& b) const {
    if (a.done != b.done || a.stage != b.stage) return false;
    for (std::size_t l = 0; l < lane_roles; ++l)
      if (std::abs(a.left.at(l) - b.left.at(l)) > alike * time_) return false;
    return true;
  }

  Timeline last_timeline() const {
    const double from = gate_times_[steps_to_settle - 2];
    Timeline timeline{intervals_.back(), gate_times_.back() - from, 0};
    for (Interval& interval : timeline.instructions) interval = {interval.begin - from, interval.end - from};
    return timeline;
  }

  // Returns the timeline of the last step. Instructions that the last step has not ended yet have the times
  // of the step before, moved by one step.
  Timeline settled_timeline() const {
    const auto last = static_cast<std::size_t>(gates_ - 1);
    const double from = gate_times_.at(last - 1);
    const double step = gate_times_.at(last) - from;
    Timeline timeline{intervals_.at(last - 1), step, 0};
    for (InstructionId id = 0; id < timeline.instructions.size(); ++id) {
      const std::size_t l = program_.lane_of[id];
      const LaneState& lane = lanes_[l];
      Interval& interval = timeline.instructions[id];
      if (lane.done > program_.index_of[id] + static_cast<Count>(last) * program_.length(l)) {
        interval = {intervals_.at(last)[id].begin - from, intervals_.at(last)[id].end - from};
      } else {
        interval = {interval.begin - from + step, interval.end - from + step};
        if (lane.id == id && lane.stage != Stage::waiting) interval.begin = lane.begin - from;
      }
    }
    return timeline;
  }

  Program program_;
  const LaneSpeeds& speeds_;
  std::array<LaneState, lane_roles> lanes_;
  std::array<std::vector<Interval>, steps_to_settle> intervals_;  // intervals of each step
  std::array<double, steps_to_settle> gate_times_{};
  Count gates_ = 0;  // number of gates passed
  State state_;      // state at the last gate passed
  bool alike_ = false;
  double time_ = 0;
};

}  // namespace

std::optional<Timeline> simulate_fluid(const Plan& plan, const std::vector<WorkTime>& work,
                                       const LaneSpeeds& speeds) {
  if (plan.gate >= plan.instructions.size()) return std::nullopt;
  return Fluid(plan, work, speeds).run();
}

}  // namespace stowage
