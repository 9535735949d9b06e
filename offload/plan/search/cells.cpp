#include "offload/plan/search/cells.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "offload/plan/bound/bound.h"
#include "offload/plan/decisions/prices.h"
#include "offload/plan/schedule/candidate.h"

namespace stowage {
namespace {

constexpr double unlimited_seconds = std::numeric_limits<double>::infinity();

// Returns amounts of device memory up to the need. More memory than the need has the same answer.
std::vector<Bytes> device_grid(Bytes minimum, Bytes need, const PlannerSettings& settings) {
  std::vector<Bytes> grid;
  const double fine_end = static_cast<double>(minimum) * settings.fine_range;
  for (auto bytes = static_cast<double>(minimum); bytes < static_cast<double>(need);) {
    grid.push_back(static_cast<Bytes>(bytes));
    bytes *= 1 + (bytes < fine_end ? settings.fine_step : settings.coarse_step);
  }
  grid.push_back(std::max(minimum, need));
  return grid;
}

std::vector<Bytes> host_grid(Bytes most, const PlannerSettings& settings) {
  std::vector<Bytes> grid{unlimited};
  auto bytes = static_cast<double>(most);
  while (bytes * settings.host_range > static_cast<double>(most)) {
    grid.push_back(static_cast<Bytes>(bytes));
    bytes *= 1 - settings.host_step;
  }
  return grid;
}

}  // namespace

RankedPlan ranked(Plan plan, const Problem& problem, const PlannerSettings& settings) {
  const PlanPrice price = price_of(plan, *problem.graph, *problem.machine, settings);
  const double seconds = plan.predicted_step_seconds + price.transfers + price.replays;
  return {std::move(plan), seconds};
}

Cells::Cells(const std::vector<Problem>& problems, const Problem& for_bound, Bytes minimum, Bytes need,
             const PlannerSettings& settings)
    : for_bound_(for_bound), settings_(settings), devices_(device_grid(minimum, need, settings)) {
  Bytes most_host = 0;
  for (const Problem& problem : problems) {
    variants_.push_back(
        std::make_unique<CellVariant>(CellVariant{&problem, ResidencyProgram(problem, settings)}));
    most_host = std::max(most_host, variants_.back()->program.most_host_bytes());
  }
  hosts_ = host_grid(most_host, settings);
}

// The bound only rises as memory falls, so a known bound below `seconds` in less memory answers for
// this cell. The cell in the middle of those below is bounded, too, since it is likely to answer for
// the next cells.
bool Cells::may_take_less(std::size_t index, Bytes host, double seconds) {
  std::map<std::size_t, double>& bounds = bounds_[host];
  const auto bound_of = [&](std::size_t device) {
    const auto known = bounds.find(device);
    if (known != bounds.end()) return known->second;
    return bounds[device] = lower_bound(for_bound_, {devices_[device], host}).seconds;
  };
  std::size_t too_small = 0;  // one past the last index whose bound is at least `seconds`
  for (const auto& [device, bound] : bounds) {
    if (device >= index) break;
    if (bound < seconds) return true;
    too_small = device + 1;
  }
  if (bound_of(index) >= seconds) return false;
  bound_of((too_small + index) / 2);
  return true;
}

double Cells::floor_seconds(Key key) {
  const auto [device, host] = key;
  double least = unlimited_seconds;
  for (const auto& variant : variants_) {
    std::map<std::size_t, Floor>& known = floors_[{variant.get(), device}];
    // A solution for more host memory that fits into this one is optimal here too.
    const auto above = std::find_if(known.begin(), known.end(), [&](const auto& floor) {
      return floor.first == host || (floor.first < host && floor.second.host_bytes <= hosts_[host]);
    });
    if (above != known.end()) {
      least = std::min(least, above->second.seconds);
      continue;
    }
    const ResidencyProgram::Mixture mixture = variant->program.solve(devices_[device], hosts_[host]);
    // If no mixture fits, the time says nothing: every mixture includes bytes that replays need.
    const double seconds = mixture.fits ? mixture.seconds : 0;
    known[host] = {seconds, mixture.fits ? mixture.host_bytes : 0};
    least = std::min(least, seconds);
  }
  return least;
}

// Each search after the first is for a smaller budget, of the host bytes that the fastest plan takes: the
// limits of the first search may have ended it among cells with more host memory.
bool Cells::improve(const Budget& budget, std::optional<RankedPlan>& best) {
  double wanted = unlimited_seconds;
  bool is_complete = true;
  for (Budget next = budget;; next.host = best->plan.host_bytes) {
    const Search search = next.host < budget.host ? Search::again : Search::fastest;
    is_complete &= improve_within(next, search, settings_.patience, best);
    if (!best || best->plan.host_bytes >= next.host || best->ranked_seconds >= wanted) break;
    wanted = wanted_seconds(best);
  }
  offer_known(budget, best);
  return is_complete;
}

std::optional<RankedPlan> Cells::any(const Budget& budget, std::optional<std::size_t> patience) {
  std::optional<RankedPlan> found;
  improve_within(budget, Search::any, patience.value_or(settings_.patience), found);
  return found;
}

// Called after the search. A search that began with a good known plan would end sooner, even if there is
// a better one.
void Cells::offer_known(const Budget& budget, std::optional<RankedPlan>& best) const {
  const RankedPlan* fastest = best ? &*best : nullptr;
  for (const auto& [device, candidates] : candidates_)
    for (const auto& candidate : candidates) {
      const std::optional<RankedPlan>& made = candidate->outcome.plan;
      if (!made || made->plan.device_peak_bytes > budget.device || made->plan.host_bytes > budget.host)
        continue;
      if (fastest == nullptr || made->ranked_seconds < fastest->ranked_seconds) fastest = &*made;
    }
  if (fastest != nullptr && (!best || fastest != &*best)) best = *fastest;
}

bool Cells::improve_within(const Budget& budget, Search search, std::size_t patience,
                           std::optional<RankedPlan>& best) {
  const auto above = std::upper_bound(devices_.begin(), devices_.end(), budget.device);
  const bool is_near_smallest =
      static_cast<double>(budget.device) <= settings_.fine_range * static_cast<double>(devices_.front());
  Work work;
  std::size_t in_vain = 0, unfit = 0;
  for (auto i = static_cast<std::size_t>(above - devices_.begin()); i-- > 0;) {
    const double before = wanted_seconds(best);
    if (best && search == Search::any) break;
    const bool is_long = search == Search::again || work.rows + work.columns > settings_.most_work;
    const bool is_longest = work.rows + work.columns > settings_.longest_work;
    if (best && is_long && (is_longest || in_vain >= patience)) {
      work.is_limited = true;
      if (is_longest || !is_near_smallest) break;
      i = 0;
    }
    if (!may_take_less(i, budget.host, before)) break;
    if (improve_in_row(i, budget, search, best, work)) {
      Cell& least_host = cell({i, hosts_.size()}, unlimited_seconds);
      work.columns += work_of(least_host);
      improve_by(least_host, budget, best);
    }
    if (!best) {
      const Cell& least_host = cell({i, hosts_.size()}, unlimited_seconds);
      // Less device memory needs no fewer host bytes.
      const std::vector<Candidate*>& candidates = least_host.candidates;
      const bool is_unfit = !candidates.empty() && candidates.front()->of.host_bytes > budget.host;
      if (is_unfit && ++unfit == patience) break;
    }
    in_vain = best && best->ranked_seconds < before ? 0 : in_vain + 1;
  }
  all_work_ += work.rows + work.columns;
  return !work.is_limited;
}

std::size_t Cells::work_of(const Cell& cell) const {
  return cell.search.sketches * variants_.front()->problem->graph->ops.size();
}

// The walk goes down from the least host memory that is not below the budget, since a rounded plan may take
// less than its program was given.
bool Cells::improve_in_row(std::size_t device, const Budget& budget, Search search,
                           std::optional<RankedPlan>& best, Work& work) {
  const std::size_t most_columns = settings_.most_work * (device == 0 ? settings_.smallest_work : 1);
  bool is_last = false;
  std::size_t h = 0;
  while (h + 1 < hosts_.size() && hosts_[h + 1] >= budget.host) ++h;
  for (bool is_first = true; h < hosts_.size(); is_first = false) {
    const double floor = floor_seconds({device, h});
    if (floor >= wanted_seconds(best)) return false;
    if (best && !is_first && work.columns > most_columns) {
      work.is_limited = true;
      if (device != 0) return false;
      // The limit of work for roundings of mixtures is reached. Cells with host memory that no mixture fits
      // into are still searched: their choices are of another kind.
      is_last = true;
      if (floor > 0) {
        ++h;
        continue;
      }
    }
    Cell& of = cell({device, h}, wanted_seconds(best));
    (is_first ? work.rows : work.columns) += work_of(of);
    work.is_limited |= of.search.is_limited;
    improve_by(of, budget, best);
    if (best && search == Search::any) return false;
    const bool any_fits = std::any_of(of.candidates.begin(), of.candidates.end(), [&](const Candidate* each) {
      return each->of.host_bytes <= hosts_[h];
    });
    if (is_last) return false;
    if (!any_fits && floor == 0) break;  // no mixture fits here, nor in less host memory
    // The programs' answers are the same for any host memory down to the bytes that they take.
    for (++h; h < hosts_.size() && hosts_[h] >= of.search.most_host;) ++h;
  }
  const bool goes_on = !best || work.columns <= most_columns;
  work.is_limited |= !goes_on;
  return goes_on;
}

// Returns the time below which another plan is wanted.
double Cells::wanted_seconds(const std::optional<RankedPlan>& best) const {
  return best ? best->ranked_seconds * (1 - settings_.close_enough) : unlimited_seconds;
}

void Cells::improve_by(Cell& cell, const Budget& budget, std::optional<RankedPlan>& best) {
  // All plans of the smallest cell need it whole, and few of them have places, so all are tried.
  const bool smallest = cell.device == devices_.front();
  Bytes most_serial = unlimited;  // candidates with more serial bytes find no places
  std::size_t placed = 0;
  for (Candidate* each : cell.candidates) {
    Candidate& candidate = *each;
    if (candidate.of.host_bytes > budget.host || candidate.of.serial_bytes > most_serial) continue;
    if (candidate.of.seconds >= wanted_seconds(best)) continue;
    if (best && !smallest && placed++ == settings_.most_placed) return;
    if (!candidate.outcome.is_final)
      candidate.outcome = outcome_of(candidate, cell.device, wanted_seconds(best));
    if (!candidate.outcome.is_final) continue;
    const std::optional<RankedPlan>& made = candidate.outcome.plan;
    if (!made && best && !smallest) {
      const Bytes failed = candidate.of.serial_bytes;
      const Bytes closer = devices_.front() + (std::max(failed, devices_.front()) - devices_.front()) / 2;
      most_serial = std::max(share_of(failed, settings_.next_serial), closer);
    }
    // A plan that is placed under a smaller cap may keep more on the host than its sketch.
    if (!made || made->plan.host_bytes > budget.host) continue;
    if (!best || made->ranked_seconds < best->ranked_seconds) best = made;
  }
}

std::optional<RankedPlan> Cells::least_host_plan(Bytes device) {
  const auto above = std::upper_bound(devices_.begin(), devices_.end(), device);
  for (auto i = static_cast<std::size_t>(above - devices_.begin()); i-- > 0;) {
    Cell& of = cell({i, hosts_.size()}, unlimited_seconds);
    for (Candidate* candidate : of.candidates) {  // candidates are in rising order of host bytes
      if (!candidate->outcome.is_final)
        candidate->outcome = outcome_of(*candidate, of.device, unlimited_seconds);
      if (candidate->outcome.plan) return candidate->outcome.plan;
    }
  }
  return std::nullopt;
}

Cells::Cell& Cells::cell(Key key, double most_seconds) {
  const auto found = cells_.find(key);
  if (found != cells_.end() && found->second.most_seconds >= most_seconds) return found->second;
  const bool least_host = key.second == hosts_.size();
  const CellSize size{devices_[key.first], least_host ? 0 : hosts_[key.second], least_host, key.first == 0,
                      most_seconds};
  Cell made{size.device, {}, {}, most_seconds};
  std::vector<std::unique_ptr<Candidate>>& row = candidates_[key.first];
  for (CellCandidate& found : find_candidates(variants_, size, settings_, tried_[key.first], made.search)) {
    auto same = std::find_if(row.begin(), row.end(), [&](const auto& each) {
      return each->of.problem == found.problem && each->of.choices == found.choices;
    });
    if (same == row.end())
      same = row.insert(row.end(), std::make_unique<Candidate>(Candidate{std::move(found), {}}));
    made.candidates.push_back(same->get());
  }
  return cells_[key] = std::move(made);
}

// Makes a plan of the first schedule that finds places, under falling caps. Gives up if the estimate under a
// lower cap is no longer below `most_seconds`. The smallest cell has no byte to spare, so its first cap is
// all of it, and all caps are tried.
Cells::Outcome Cells::outcome_of(const Candidate& candidate, Bytes capacity, double most_seconds) {
  const Sketcher sketcher(*candidate.of.problem, candidate.of.choices);
  const bool smallest = capacity == devices_.front();
  std::vector<double> caps = settings_.caps;
  if (smallest) caps.insert(caps.begin(), 1);
  for (const double share : caps) {
    const Bytes cap = share_of(capacity, share);
    const Sketch sketch = sketcher.within(cap, settings_.gathers_ahead);
    if (share < caps.front() && estimated_seconds(*candidate.of.problem, sketch) >= most_seconds) return {};
    if (std::optional<Plan> plan =
            placed_within(*candidate.of.problem, sketch.draft, capacity, settings_, places_)) {
      plan->policy = to_string(Policy::automatic);
      return {true, ranked(std::move(*plan), *candidate.of.problem, settings_)};
    }
    if (!smallest && cap <= sketcher.serial_bytes()) break;
  }
  return {true, {}};
}

namespace {

// Work limit, as a multiple of the work of the search without a host limit.
constexpr std::size_t fewest_work = 3;
constexpr Bytes closest_part = 100;  // the smallest step is a hundredth of the fewest bytes

class FewestSearch {
 public:
  FewestSearch(Cells& cells, Bytes device, FewestHost& found)
      : cells_(cells), device_(device), found_(found) {}

  // Searches for a plan in `host` host bytes. Returns whether there is one.
  bool search(Bytes host) {
    std::optional<RankedPlan> plan;
    if (host == unlimited)
      cells_.improve({device_, host}, plan);
    else
      plan = cells_.any({device_, host});
    if (!plan) return false;
    offer(std::move(*plan));
    return true;
  }
  void offer(RankedPlan plan) {
    found_.bytes = std::min(found_.bytes, plan.plan.host_bytes);
    found_.plans.push_back(std::move(plan));
  }

 private:
  Cells& cells_;
  Bytes device_;
  FewestHost& found_;
};

}  // namespace

FewestHost fewest_host(Cells& cells, Bytes device, const std::vector<Bytes>& others) {
  FewestHost found;
  for (const Bytes bytes : others) found.bytes = std::min(found.bytes, bytes);
  FewestSearch search(cells, device, found);
  search.search(unlimited);
  const std::size_t enough = fewest_work * cells.work();
  if (std::optional<RankedPlan> least = cells.least_host_plan(device)) search.offer(std::move(*least));
  if (found.bytes == unlimited) return found;
  Bytes in_vain = 0, step = 1;  // step: in hundredths of the fewest bytes
  const auto part = [&] { return std::max<Bytes>(1, found.bytes / closest_part); };
  while (found.bytes > 0 && found.bytes - in_vain > part()) {
    if (cells.work() > enough) {
      found.at_most = true;
      break;
    }
    const Bytes less = in_vain > 0 ? (found.bytes - in_vain) / 2 : std::min(found.bytes, step * part());
    const Bytes host = found.bytes - std::max(less, part());
    if (search.search(host))
      step *= 2;
    else
      in_vain = std::max<Bytes>(host, 1);
  }
  return found;
}

}  // namespace stowage
