#include "offload/plan/improve_choices.h"

#include <utility>

#include "offload/plan/extreme_choices.h"

namespace stowage {
namespace {

// Another level of one bucket's loads, or of one item.
struct Change {
  bool is_load = false;
  std::uint32_t index = 0;
  std::uint8_t level = 0;
};
std::vector<Change> changes_of(const Problem& problem, const Choices& choices) {
  std::vector<Change> changes;
  for (BucketId id = 0; id < choices.loads.size(); ++id)
    for (std::uint8_t level = 0; level <= static_cast<std::uint8_t>(highest_load(problem, id)); ++level)
      if (level != static_cast<std::uint8_t>(choices.loads[id]) &&
          level != static_cast<std::uint8_t>(LoadChoice::in_slices))
        changes.push_back({true, id, level});
  using enum ActivationChoice;
  for (std::uint32_t i = 0; i < problem.items.size(); ++i)
    for (const ActivationChoice level : {problem.items[i].rebuildable ? recompute : spill, offload, keep})
      if (level != choice_of(problem.items[i], choices))
        changes.push_back({false, i, static_cast<std::uint8_t>(level)});
  return changes;
}
void apply(const Change& change, const Problem& problem, Choices& choices) {
  if (change.is_load)
    choices.loads[change.index] = static_cast<LoadChoice>(change.level);
  else
    choose(problem.items[change.index], static_cast<ActivationChoice>(change.level), choices);
}

}  // namespace

void improve_choices(const Problem& problem, Choices choices, std::size_t trials,
                     const std::function<bool(const Choices&)>& is_better) {
  const auto take = [&](const Change& one, const Change& other) {
    Choices changed = choices;
    apply(one, problem, changed);
    apply(other, problem, changed);
    --trials;
    if (!is_better(changed)) return false;
    choices = std::move(changed);
    return true;
  };
  const auto take_any = [&] {
    const std::vector<Change> changes = changes_of(problem, choices);
    if (changes.size() > trials) return false;
    for (const Change& each : changes)
      if (take(each, each)) return true;
    for (std::size_t i = 0; i < changes.size(); ++i)
      for (std::size_t j = 0; j < i && trials > 0; ++j)
        if (take(changes[i], changes[j])) return true;
    return false;
  };
  while (take_any()) {
  }
}

}  // namespace stowage
