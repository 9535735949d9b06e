#include "offload/plan/cells.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "offload/plan/arena.h"
#include "offload/plan/bound.h"
#include "offload/plan/extreme_choices.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

std::vector<Bytes> device_grid(Bytes minimum, Bytes need, const PlannerSettings& settings) {
  std::vector<Bytes> grid;
  const double fine_end = static_cast<double>(minimum) * settings.fine_range;
  for (auto bytes = static_cast<double>(minimum);;) {
    grid.push_back(static_cast<Bytes>(bytes));
    if (grid.back() >= need) return grid;
    bytes *= 1 + (bytes < fine_end ? settings.fine_step : settings.coarse_step);
  }
}

std::vector<Bytes> host_grid(Bytes most, const PlannerSettings& settings) {
  std::vector<Bytes> grid{unlimited};
  for (double bytes = static_cast<double>(most); bytes * settings.host_range > static_cast<double>(most);
       bytes *= 1 - settings.host_step)
    grid.push_back(static_cast<Bytes>(bytes));
  return grid;
}

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
      if (level != static_cast<std::uint8_t>(choices.loads[id])) changes.push_back({true, id, level});
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

// Makes changes, one or two at a time, as long as `is_better` says that one of them is. Asks it for no more
// than `trials` changes, and for none where single changes alone are more.
template <typename IsBetter>
void improve_choices(const Problem& problem, Choices choices, std::size_t trials, IsBetter&& is_better) {
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

Bytes share_of(Bytes bytes, double share) {
  return static_cast<Bytes>(share * static_cast<double>(bytes));
}

}  // namespace

RankedPlan ranked(Plan plan, const Problem& problem, const PlannerSettings& settings) {
  double risk = 0;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind == InstructionKind::prefetch || instruction.kind == InstructionKind::offload)
      risk += settings.transfer_risk * problem.machine->h2d.latency_seconds;
    if (instruction.kind == InstructionKind::recompute)
      risk += settings.replay_price * op_seconds(problem.graph->op(instruction.op), *problem.machine);
  }
  const double seconds = plan.predicted_step_seconds + risk;
  return {std::move(plan), seconds};
}

Cells::Cells(const std::vector<Problem>& problems, const Problem& for_bound, Bytes minimum, Bytes need,
             const PlannerSettings& settings)
    : for_bound_(for_bound), settings_(settings), devices_(device_grid(minimum, need, settings)) {
  Bytes most_host = 0;
  for (const Problem& problem : problems) {
    variants_.push_back(std::make_unique<Variant>(Variant{&problem, ResidencyProgram(problem, settings)}));
    most_host = std::max(most_host, variants_.back()->program.most_host_bytes());
  }
  hosts_ = host_grid(most_host, settings);
  bounds_.resize(devices_.size());
}

double Cells::bound_seconds(std::size_t index) {
  if (!bounds_[index]) bounds_[index] = lower_bound(for_bound_, devices_[index]).seconds;
  return *bounds_[index];
}

double Cells::floor_seconds(Bytes device, Bytes host) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& variant : variants_) {
    const ResidencyProgram::Mixture mixture = variant->program.solve(device, host);
    // Where no mixture fits, its time says nothing: the bytes that replays need are a part of every mixture.
    least = std::min(least, mixture.fits ? mixture.seconds : 0);
  }
  return least;
}

void Cells::improve(const Budget& budget, std::optional<RankedPlan>& best) {
  const auto above = std::upper_bound(devices_.begin(), devices_.end(), budget.device);
  std::size_t in_vain = 0;
  for (auto i = static_cast<std::size_t>(above - devices_.begin()); i-- > 0;) {
    const double before = wanted_seconds(best);
    if (bound_seconds(i) >= before || (best && in_vain == settings_.patience)) return;
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      if (hosts_[h] > budget.host) continue;
      if (floor_seconds(devices_[i], hosts_[h]) >= wanted_seconds(best)) break;
      improve_by(cell({i, h}), budget, best);
      if (budget.host == unlimited) break;
    }
    if (!best) improve_by(cell({i, hosts_.size()}), budget, best);
    in_vain = best && best->ranked_seconds < before ? 0 : in_vain + 1;
  }
}

// What another plan must take less than.
double Cells::wanted_seconds(const std::optional<RankedPlan>& best) const {
  return best ? best->ranked_seconds * (1 - settings_.close_enough) : std::numeric_limits<double>::infinity();
}

void Cells::improve_by(Cell& cell, const Budget& budget, std::optional<RankedPlan>& best) {
  for (Candidate& candidate : cell.candidates) {
    if (candidate.host_bytes > budget.host) continue;
    if (candidate.seconds >= wanted_seconds(best)) return;
    if (!candidate.made) candidate.made = plan_of(candidate, cell.device, wanted_seconds(best));
    const std::optional<RankedPlan>& made = *candidate.made;
    if (made && (!best || made->ranked_seconds < best->ranked_seconds)) best = made;
  }
}

Bytes Cells::least_host_bytes(Bytes device) {
  const auto above = std::upper_bound(devices_.begin(), devices_.end(), device);
  for (auto i = static_cast<std::size_t>(above - devices_.begin()); i-- > 0;) {
    Cell& of = cell({i, hosts_.size()});
    for (Candidate& candidate : of.candidates) {  // fewest host bytes first
      if (!candidate.made) candidate.made = plan_of(candidate, of.device, std::numeric_limits<double>::infinity());
      if (*candidate.made) return candidate.host_bytes;
    }
  }
  return unlimited;
}

Cells::Cell& Cells::cell(Key key) {
  const auto found = cells_.find(key);
  if (found != cells_.end()) return found->second;
  const bool least_host = key.second == hosts_.size();
  return cells_.emplace(key, made_cell(devices_[key.first], least_host ? 0 : hosts_[key.second], least_host))
      .first->second;
}

Cells::Cell Cells::made_cell(Bytes device, Bytes host, bool least_host) {
  Cell made{device, host, least_host, {}};
  const auto consider = [&](const Problem& problem, Choices choices) {
    for (const Candidate& known : made.candidates)
      if (known.problem == &problem && known.choices == choices) return;
    const Sketcher sketcher(problem, choices);
    if (sketcher.serial_bytes() > device) return;
    const Sketch sketch = sketcher.within(share_of(device, settings_.caps.front()));
    const Bytes on_host = host_bytes(problem, sketch.draft);
    if (!least_host && on_host > host) return;
    made.candidates.push_back({&problem, std::move(choices), estimated_seconds(problem, sketch), on_host});
  };
  const auto best = [&] {
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& each : made.candidates) least = std::min(least, each.seconds);
    return least;
  };
  bool fit = true;
  for (const auto& variant : variants_) {
    for (const double room : settings_.rooms) {
      const Bytes bytes = share_of(device, room);
      const ResidencyProgram::Mixture mixture =
          least_host ? variant->program.least_host(bytes) : variant->program.solve(bytes, host);
      if (room == settings_.rooms.front()) fit &= mixture.fits;
      if (!least_host && mixture.fits && mixture.seconds >= best()) break;
      consider(*variant->problem, variant->program.round(mixture, Rounding::forward));
      if (settings_.both_roundings)
        consider(*variant->problem, variant->program.round(mixture, Rounding::backward));
    }
  }
  for (const auto& variant : variants_) {
    const Problem& problem = *variant->problem;
    const Candidate* start = nullptr;
    for (const Candidate& each : made.candidates)
      if (each.problem == &problem && (start == nullptr || each.seconds < start->seconds)) start = &each;
    if (least_host || start == nullptr) continue;
    double before = start->seconds;
    improve_choices(problem, Choices(start->choices), settings_.trials, [&](const Choices& changed) {
      const std::size_t known = made.candidates.size();
      consider(problem, changed);
      if (made.candidates.size() == known) return false;
      const bool is_better = made.candidates.back().seconds < before;
      if (is_better)
        before = made.candidates.back().seconds;
      else
        made.candidates.pop_back();
      return is_better;
    });
  }
  if (!fit || made.candidates.empty())
    for (const auto& variant : variants_)
      for (Choices& choices : minimum_candidates(*variant->problem))
        consider(*variant->problem, std::move(choices));
  std::stable_sort(made.candidates.begin(), made.candidates.end(), [&](const Candidate& a, const Candidate& b) {
    return least_host ? a.host_bytes < b.host_bytes : a.seconds < b.seconds;
  });
  if (made.candidates.size() > settings_.most_placed) made.candidates.resize(settings_.most_placed);
  return made;
}

// The first that finds places under falling caps, as long as the estimate is below `most_seconds`.
std::optional<RankedPlan> Cells::plan_of(const Candidate& candidate, Bytes capacity, double most_seconds) const {
  const Sketcher sketcher(*candidate.problem, candidate.choices);
  for (const double share : settings_.caps) {
    const Bytes cap = share_of(capacity, share);
    const Sketch sketch = sketcher.within(cap);
    if (share < settings_.caps.front() && estimated_seconds(*candidate.problem, sketch) >= most_seconds) break;
    if (std::optional<Plan> plan = placed_within(*candidate.problem, sketch.draft, capacity, settings_)) {
      plan->policy = to_string(Policy::automatic);
      return ranked(std::move(*plan), *candidate.problem, settings_);
    }
    if (cap <= sketcher.serial_bytes()) break;
  }
  return std::nullopt;
}

}  // namespace stowage
