#include "offload/plan/changes.h"

#include "offload/plan/residency.h"

namespace stowage {

std::vector<Change> all_changes(const Problem& problem) {
  std::vector<Change> changes;
  for (std::uint32_t item = 0; item < problem.items.size(); ++item)
    for (int level = 0; level <= highest_level(problem, true, item); ++level)
      if (problem.items[item].rebuildable || level != static_cast<int>(ActivationChoice::recompute))
        changes.push_back({true, item, level});
  for (BucketId id = 0; id < problem.layout.buckets.size(); ++id)
    for (int level = 0; level <= highest_level(problem, false, id) && highest_level(problem, false, id) > 0;
         ++level)
      changes.push_back({false, id, level});
  return changes;
}

int level_of(const Problem& problem, const Change& change, const Choices& choices) {
  return change.is_activation ? static_cast<int>(choice_of(problem.items[change.index], choices))
                              : static_cast<int>(choices.loads[change.index]);
}

void apply(const Problem& problem, const Change& change, Choices& choices) {
  if (change.is_activation)
    choose(problem.items[change.index], static_cast<ActivationChoice>(change.level), choices);
  else
    choices.loads[change.index] = static_cast<LoadChoice>(change.level);
}

}  // namespace stowage
