#include "offload/plan/lane_waits.h"

#include <array>

namespace stowage {
namespace {

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
  std::vector<Newest> newest_;  // by lifetime
};

}  // namespace

void want_lane_waits(const BucketLayout& layout, const Draft& draft, const Plan& plan,
                     std::vector<WantedWait>& wanted) {
  LaneWaits(layout, draft, plan, wanted).add();
}

}  // namespace stowage
