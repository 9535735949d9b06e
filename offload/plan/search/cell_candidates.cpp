#include "offload/plan/search/cell_candidates.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"

namespace stowage {
namespace {

// A change of one bucket's LoadChoice, or of one item's choice, to another level.
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

// Searches locally around choices. The search is for small graphs, where rounding the residency program's
// answer costs most. Changes the choices of one item or parameter bucket, or of two, as long as `is_better`
// says that a change is better. Asks about at most `trials` changes, and about none if the graph has more
// single changes than that.
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

class CandidateFinder {
 public:
  CandidateFinder(const CellSize& size, const PlannerSettings& settings, TriedChoices& tried)
      : size_(size), settings_(settings), tried_(tried) {}

  // Adds the candidates of each variant, room by room. A variant goes on after a mixture that does not fit,
  // since the time of such a mixture says nothing. The program knows too little of the order of slices'
  // updates, so each of PlannerSettings::slice_shares is tried with the best room of a variant.
  void add_from(const std::vector<std::unique_ptr<CellVariant>>& variants) {
    std::vector<Turn> turns;
    for (const auto& variant : variants) turns.push_back({variant.get()});
    for (Turn& turn : turns)
      for (const double room : settings_.rooms)
        if (!turn.is_over && (room == settings_.rooms.front() || !is_long())) add_room(room, turn);
    for (const Turn& turn : turns) {
      if (turn.best_bytes == 0) continue;
      for (const GivenShares& given : turn.variant->program.sliced()) {
        if (is_long()) return;
        add_rounded(*turn.variant, turn.variant->program.solve(turn.best_bytes, size_.host, given));
      }
    }
  }
  // Adds changes of the problem's choices with the best estimate.
  void add_changes(const Problem& problem) {
    const CellCandidate* start = nullptr;
    for (const CellCandidate& each : found_)
      if (each.problem == &problem && each.host_bytes <= size_.host &&
          (start == nullptr || each.seconds < start->seconds))
        start = &each;
    if (start == nullptr) return;
    double seconds = start->seconds;
    improve_choices(problem, Choices(start->choices), settings_.trials, [&](const Choices& changed) {
      if (!add(problem, changed)) return false;
      const bool is_better = found_.back().host_bytes <= size_.host && found_.back().seconds < seconds;
      if (is_better)
        seconds = found_.back().seconds;
      else
        found_.pop_back();
      return is_better;
    });
  }
  void add_extremes(const Problem& problem) {
    for (const Choices& choices : minimum_candidates(problem))
      for (const Choices& each : with_speculations(problem, choices)) add(problem, each);
  }
  // Returns the choices without early updates, and with some fractions of the updates early, spread evenly.
  // The program does not say here which updates should be early.
  std::vector<Choices> with_speculations(const Problem& problem, const Choices& choices) const {
    std::vector<Choices> all{choices};
    const bool saves_host_bytes = problem.early_updates == EarlyUpdates::final;
    if ((size_.least_host && !saves_host_bytes) || !settings_.speculates) return all;
    for (const double share : settings_.early_shares) {
      Choices& changed = all.emplace_back(choices);
      changed.speculated.assign(problem.layout.buckets.size(), 0);
      double due = 0;
      for (const BucketId id : problem.layout.parameters) {
        due += share;
        if (due < 1 - 1e-9) continue;
        due -= 1;
        changed.speculated[id] = problem.undo_bytes[id] > 0;
      }
    }
    return all;
  }
  // Returns whether the extreme choices are needed: some variant's first mixture does not fit, or no
  // candidate does.
  bool needs_extremes() const {
    return !all_fit_ || std::none_of(found_.begin(), found_.end(), [&](const CellCandidate& each) {
      return size_.least_host || each.host_bytes <= size_.host;
    });
  }

  std::vector<CellCandidate> result() && {
    for (const CellCandidate& each : found_) tried_.find(*each.problem, each.choices)->is_kept = true;
    std::stable_sort(found_.begin(), found_.end(), [&](const CellCandidate& a, const CellCandidate& b) {
      return size_.least_host ? a.host_bytes < b.host_bytes : a.seconds < b.seconds;
    });
    return std::move(found_);
  }
  std::size_t sketches() const { return sketches_; }
  Bytes most_host() const { return most_host_; }
  // Returns whether the cell has used up its work.
  bool is_long() const { return work_ > settings_.most_cell_work; }

 private:
  struct Turn {
    const CellVariant* variant = nullptr;
    bool is_over = false;  // true once less room brings nothing better
    Bytes best_bytes = 0;  // room of the best choices, whose estimate is `least`
    double least = std::numeric_limits<double>::infinity();
  };
  void add_room(double room, Turn& turn) {
    const CellVariant& variant = *turn.variant;
    const Bytes bytes = share_of(size_.device, room);
    const ResidencyProgram::Mixture mixture =
        size_.least_host ? variant.program.least_host(bytes) : variant.program.solve(bytes, size_.host);
    if (room == settings_.rooms.front()) all_fit_ &= mixture.fits;
    if (!size_.least_host && mixture.fits) {
      turn.is_over =
          mixture.seconds >= best() * (1 - settings_.close_enough) || mixture.seconds >= size_.most_seconds;
      if (turn.is_over) return;
    }
    add_rounded(variant, mixture);
    if (size_.least_host) return;
    for (const GivenShares& given : variant.program.divided(mixture, size_.device))
      add_rounded(variant, variant.program.solve(bytes, size_.host, given));
    const double seconds = best(variant.problem);
    if (turn.best_bytes != 0 && seconds >= turn.least) return;
    turn.best_bytes = bytes;
    turn.least = seconds;
  }
  void add_rounded(const CellVariant& variant, const ResidencyProgram::Mixture& mixture) {
    most_host_ = std::max(most_host_, mixture.host_bytes);
    using Rounding = ResidencyProgram::Rounding;
    add(*variant.problem, variant.program.round(mixture, Rounding::by_kind));
    if (variant.program.alone_share() > settings_.alone_share)
      add(*variant.problem, variant.program.round(mixture, Rounding::balanced));
  }
  // Returns false for choices that are found already or do not fit.
  bool add(const Problem& problem, Choices choices) {
    if (std::any_of(found_.begin(), found_.end(), [&](const CellCandidate& other) {
          return other.problem == &problem && other.choices == choices;
        }))
      return false;
    const TriedChoices::Trial trial = tried(problem, choices);
    if (!trial.is_kept) ++sketches_;
    work_ += problem.graph->ops.size();
    if (!trial.fits) return false;
    if (trial.host_bytes <= size_.host) most_host_ = std::max(most_host_, trial.host_bytes);
    found_.push_back({&problem, std::move(choices), trial.seconds, trial.host_bytes, trial.serial_bytes});
    return true;
  }
  TriedChoices::Trial tried(const Problem& problem, const Choices& choices) {
    if (const TriedChoices::Trial* known = tried_.find(problem, choices)) return *known;
    const TriedChoices::Trial trial = sketched(problem, choices);
    tried_.add(problem, choices, trial);
    return trial;
  }
  TriedChoices::Trial sketched(const Problem& problem, const Choices& choices) const {
    const Sketcher sketcher(problem, choices);
    if (sketcher.serial_bytes() > size_.device) return {};
    const Sketch sketch = sketcher.within(share_of(size_.device, size_.smallest ? 1 : settings_.caps.front()),
                                          settings_.gathers_ahead);
    return {.fits = true,
            .seconds = estimated_seconds(problem, sketch),
            .host_bytes = host_bytes(problem, sketch.draft),
            .serial_bytes = sketcher.serial_bytes()};
  }
  // Returns the seconds of the best candidate, of one problem or of all.
  double best(const Problem* of = nullptr) const {
    double least = std::numeric_limits<double>::infinity();
    for (const CellCandidate& each : found_)
      if (each.host_bytes <= size_.host && (of == nullptr || each.problem == of))
        least = std::min(least, each.seconds);
    return least;
  }

  const CellSize& size_;
  const PlannerSettings& settings_;
  TriedChoices& tried_;
  std::vector<CellCandidate> found_;
  bool all_fit_ = true;
  std::size_t sketches_ = 0;
  std::size_t work_ = 0;  // ops of all schedules made, known ones included
  Bytes most_host_ = 0;
};

}  // namespace

TriedChoices::Trial* TriedChoices::find(const Problem& problem, const Choices& choices) {
  std::map<Choices, Trial>& trials = trials_[&problem];
  const auto found = trials.find(choices);
  return found == trials.end() ? nullptr : &found->second;
}

void TriedChoices::add(const Problem& problem, const Choices& choices, const Trial& trial) {
  trials_[&problem].emplace(choices, trial);
}

std::vector<CellCandidate> find_candidates(const std::vector<std::unique_ptr<CellVariant>>& variants,
                                           const CellSize& size, const PlannerSettings& settings,
                                           TriedChoices& tried, CellSearch& search) {
  CandidateFinder finder(size, settings, tried);
  finder.add_from(variants);
  if (!size.least_host)
    for (const auto& variant : variants) finder.add_changes(*variant->problem);
  if (finder.needs_extremes())
    for (const auto& variant : variants) finder.add_extremes(*variant->problem);
  search = {finder.sketches(), finder.most_host(), finder.is_long()};
  return std::move(finder).result();
}

}  // namespace stowage
