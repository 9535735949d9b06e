#include "offload/engine/joint.h"

#include <algorithm>
#include <map>
#include <utility>

#include "offload/engine/binding.h"

namespace stowage {
namespace {

// Returns, by lifetime, the first instruction that names it.
std::vector<InstructionId> first_mentions(const Plan& plan) {
  std::vector<InstructionId> first(plan.lifetimes.size(), no_id);
  const auto mention = [&](LifetimeId lifetime, InstructionId id) {
    if (lifetime != no_id) first[lifetime] = std::min(first[lifetime], id);
  };
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    mention(plan.instructions[id].lifetime, id);
    for (const LifetimeId lifetime : plan.instructions[id].uses) mention(lifetime, id);
  }
  return first;
}

class JointUpdateFinder {
 public:
  JointUpdateFinder(const Graph& graph, const Plan& plan, const LaunchTable& kernels)
      : graph_(graph),
        plan_(plan),
        kernels_(kernels),
        first_mention_(first_mentions(plan)),
        awaited_(plan.instructions.size()) {
    for (const Instruction& instruction : plan.instructions)
      for (const Wait& wait : instruction.waits)
        if (wait.steps_back == 0) awaited_[wait.instruction] = true;
  }

  std::vector<std::vector<InstructionId>> find() {
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id) {
      if (id == plan_.gate + 1) end_run();
      const Instruction& instruction = plan_.instructions[id];
      if (instruction.lane != LaneRole::compute) continue;
      if (!has_joint_kernel(instruction)) {
        end_run();
        continue;
      }
      if (!run_.empty() && !goes_with_the_first(id)) end_run();
      run_.push_back(id);
      if (awaited_[id] || run_.size() == most_joint_updates) end_run();
    }
    end_run();
    return std::move(groups_);
  }

 private:
  bool has_joint_kernel(const Instruction& instruction) const {
    return instruction.kind == InstructionKind::commit &&
           kernels_.find_joint(graph_.op(instruction.op).kernel) != nullptr;
  }
  // Whether nothing needs to happen between the run's first commit and this one.
  bool goes_with_the_first(InstructionId id) const {
    const Instruction &instruction = plan_.instructions[id], &first = plan_.instructions[run_.front()];
    const auto is_awaited_before = [&](const Wait& wait) {
      return std::find(first.waits.begin(), first.waits.end(), wait) != first.waits.end();
    };
    const auto is_there_before = [&](LifetimeId lifetime) {
      return plan_.lifetimes[lifetime].end == no_id || first_mention_[lifetime] < run_.front();
    };
    return std::all_of(instruction.waits.begin(), instruction.waits.end(), is_awaited_before) &&
           std::all_of(instruction.uses.begin(), instruction.uses.end(), is_there_before);
  }

  // The kernel's name and the operands' types.
  std::pair<std::string, std::vector<DataType>> kind_of(InstructionId id) const {
    const Op& op = graph_.op(plan_.instructions[id].op);
    std::vector<DataType> types;
    for (const auto* operands : {&op.reads, &op.writes})
      for (const TensorId tensor : *operands) types.push_back(graph_.tensor(tensor).type);
    return {op.kernel, std::move(types)};
  }
  void end_run() {
    std::map<std::pair<std::string, std::vector<DataType>>, std::vector<InstructionId>> kinds;
    for (const InstructionId id : run_) kinds[kind_of(id)].push_back(id);
    for (auto& [kind, group] : kinds)
      if (group.size() > 1) groups_.push_back(std::move(group));
    run_.clear();
  }

  const Graph& graph_;
  const Plan& plan_;
  const LaunchTable& kernels_;
  const std::vector<InstructionId> first_mention_;
  std::vector<bool> awaited_;  // by instruction: another one of its step waits for it
  std::vector<InstructionId> run_;
  std::vector<std::vector<InstructionId>> groups_;
};

}  // namespace

std::vector<std::vector<InstructionId>> joint_updates(const Graph& graph, const Plan& plan,
                                                      const LaunchTable& kernels) {
  return JointUpdateFinder(graph, plan, kernels).find();
}

void JointWork::run(void* work) {
  JointWork& self = *static_cast<JointWork*>(work);
  self.arguments.clear();
  for (Work* const member : self.works) {
    member->begun = true;
    self.arguments.push_back(member->arguments());
  }
  self.kernel(self.arguments);
  for (Work* const member : self.works) member->done = true;
}

}  // namespace stowage
