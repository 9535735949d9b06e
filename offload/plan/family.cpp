#include "offload/plan/family.h"

#include <algorithm>

#include "offload/plan/repair.h"
#include "offload/plan/residency.h"

namespace stowage {
namespace {

// How many live bytes transfers may make, in parts of what the ops alone need; and without limit.
constexpr double shares[] = {0.5, 0.75, 0.9, 1, 1.1, 1.5, 2.5, 0};
constexpr std::size_t longest_path = 96;
constexpr std::size_t shortest_path = 12;
// What the family may cost: ops looked at, and ops simulated for a path that is found by simulation.
constexpr std::size_t most_family_ops = 6'000'000;
constexpr std::size_t most_path_ops = 1'000'000;
constexpr std::size_t most_repair_ops = 400'000, most_repair_ops_of_many = 20'000;  // for each bucket size
// What more residents than a path has are combined with.
constexpr std::size_t resident_parts = 8, most_bases = 8;
constexpr std::size_t most_mixed_ops = 4'000'000, fewest_points = 4, most_points = 8;
constexpr std::size_t most_starts = 8, few_ops = 28;
// Lifetimes: up to so many, place() searches by itself (src/placement/placement.cpp).
constexpr std::size_t searched_anyway = 512;
// Less than the simulation's rounding.
constexpr double hair = 1e-9;

// At most `points` of the path's choices, ends included, at even distances.
std::vector<Choices> thin(std::vector<Choices> path, std::size_t points) {
  if (path.size() <= points) return path;
  std::vector<Choices> thinned;
  for (std::size_t i = 0; i < points; ++i) thinned.push_back(path[i * (path.size() - 1) / (points - 1)]);
  return thinned;
}

bool fits(const Plan& plan, const Budget& budget) {
  return plan.device_peak_bytes <= budget.device && plan.host_bytes <= budget.host;
}

// Of what takes least memory that which then takes least time. As the paths do, it ends with more memory.
Choices relaxed_choices(const Problem& problem, const std::vector<Choices>& minimum) {
  std::vector<Bytes> bytes;
  for (const Choices& choices : minimum) bytes.push_back(Sketcher(problem, choices).serial_bytes());
  const auto least = std::min_element(bytes.begin(), bytes.end());
  return relaxed(problem, minimum[static_cast<std::size_t>(least - bytes.begin())], *least);
}

// The same with the first parameters resident, by eighths.
std::vector<Choices> with_residents(const Problem& problem, const Choices& base) {
  std::vector<Choices> found;
  const std::vector<BucketId>& order = problem.layout.parameters;
  for (std::size_t part = 1; part <= resident_parts; ++part) {
    Choices choices = base;
    for (std::size_t i = 0; i < order.size() * part / resident_parts; ++i)
      choices.loads[order[i]] = LoadChoice::resident;
    if (choices != (found.empty() ? base : found.back())) found.push_back(std::move(choices));
  }
  return found;
}

// A path says how memory is best shared for one amount of it, as its estimate has it. These have more of the
// optimizer on the device than the path has beside the same activations, or activations chosen anew for that.
std::vector<Choices> mixed_choices(const Problem& problem, const std::vector<std::vector<Choices>>& paths,
                                   std::size_t points) {
  std::vector<Choices> mixed;
  for (const std::vector<Choices>& path : paths)
    for (const Choices& base : thin(path, most_bases))
      for (Choices& choices : with_residents(problem, base)) mixed.push_back(std::move(choices));
  for (const Choices& lowest : {lowest_choices(problem), paths.front().front()})
    for (const Choices& start : with_residents(problem, lowest))
      for (Choices& choices : thin(estimated_path_from(problem, start), points))
        if (choices != start) mixed.push_back(std::move(choices));
  return mixed;
}

Bytes cap_of(double share, Bytes serial) {
  return share > 0 ? static_cast<Bytes>(share * static_cast<double>(serial)) : unlimited;
}

}  // namespace

void Selection::offer(Plan plan) {
  if (plan.device_peak_bytes > budget_.device) return;
  if (!least_host_ || plan.host_bytes < *least_host_) least_host_ = plan.host_bytes;
  if (!fits(plan, budget_)) return;
  if (!best_ || plan.predicted_step_seconds < best_->predicted_step_seconds) best_ = std::move(plan);
}

Family::Family(const std::vector<Problem>& problems, Bytes least, std::unique_ptr<PolicyProblems> emulated)
    : least_(least), emulated_(std::move(emulated)) {
  add_paths(problems);
  add_repaired(problems);
  if (emulated_) add_emulated();
}

void Family::add_members(const Problem& problem, const std::vector<Choices>& all, bool on_path) {
  for (const Choices& choices : all) {
    members_.push_back({&problem, choices, {}, {}, {}, on_path});
    for (double share : shares) members_.back().variants.push_back({share, {}, {}, {}, 0, 0});
  }
}

// Those with most memory, which tend to be the fastest, first.
void Family::add_paths(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) {
    const std::size_t ops = problem.graph->ops.size();
    std::vector<std::vector<Choices>> paths{minimum_candidates(problem), estimated_path(problem)};
    const bool simulated = 3 * (problem.items.size() + problem.layout.buckets.size()) * ops <= most_path_ops;
    if (simulated) paths.push_back(simulated_path(problem));
    minimum_.push_back(paths.front());
    paths.front().push_back(relaxed_choices(problem, paths.front()));
    const std::size_t members = problems.size() * paths.size() * std::size(shares) * ops;
    const std::size_t points = std::clamp(most_family_ops / members, shortest_path, longest_path);
    const std::size_t mixed_points =
        std::clamp(most_mixed_ops / (2 * resident_parts * problems.size() * std::size(shares) * ops),
                   fewest_points, most_points);
    // Simulation has seen the whole of it.
    const std::vector<Choices> mixed =
        simulated ? std::vector<Choices>{} : mixed_choices(problem, paths, mixed_points);
    for (std::vector<Choices>& path : paths) add_members(problem, thin(std::move(path), points), true);
    add_members(problem, mixed, false);
  }
  std::reverse(members_.begin(), members_.end());
}

// What the emulated systems would do is in the family too, so that none of them is faster.
void Family::add_emulated() {
  std::vector<Member> emulated;
  for (PolicyMember& member : all_policy_members(*emulated_))
    emulated.push_back(
        {member.problem, std::move(member.choices), member.handicaps, member.distance, {Variant{}}, false});
  members_.insert(members_.begin(), std::make_move_iterator(emulated.begin()),
                  std::make_move_iterator(emulated.end()));
}

void Family::add_repaired(const std::vector<Problem>& problems) {
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const Problem& problem = problems[i];
    if (i > 0 && problem.layout.buckets == problems.front().layout.buckets) continue;
    const std::size_t most_ops =
        problem.graph->ops.size() <= few_ops ? most_repair_ops : most_repair_ops_of_many;
    std::vector<Choices> starts;
    for (const Member& member : members_)
      if (member.problem == &problem && member.on_path) starts.push_back(member.choices);
    starts = thin(std::move(starts), most_starts);
    starts.insert(starts.end(), minimum_[i].begin(), minimum_[i].end());
    for (LimitedSketch& limited : repaired_front(problem, starts, least_, most_ops))
      repaired_.push_back({&problem, std::move(limited)});
  }
  std::stable_sort(repaired_.begin(), repaired_.end(), [](const Repaired& a, const Repaired& b) {
    return a.limited.seconds < b.limited.seconds;
  });
}

void Family::offer_to(Selection& selection) {
  offer_repaired(selection);
  for (const Ranked& next : ranked(selection)) {
    Variant& variant = *next.variant;
    if (selection.beaten(variant.least_seconds)) continue;
    // What might fit the smallest budget is placed for that too, whatever the budget at hand: so the family
    // depends on none.
    const bool tight = *variant.live_bytes <= least_;
    if (!tight && variant.peak_bytes &&
        (*variant.peak_bytes > selection.budget().device || selection.beaten(variant.plan_seconds)))
      continue;
    const Problem& problem = *next.member->problem;
    const Sketcher sketcher(problem, next.member->choices, next.member->handicaps);
    const Draft draft = sketch(sketcher, *next.member, variant).draft;
    auto offer = [&](Plan plan) {
      plan.policy = "auto";
      selection.offer(std::move(plan));
    };
    Plan plan = complete(problem, draft);
    variant.peak_bytes = plan.device_peak_bytes;
    variant.plan_seconds = plan.predicted_step_seconds;
    offer(std::move(plan));
    if (tight && *variant.peak_bytes > least_ && draft.lifetimes.size() > searched_anyway)
      offer(complete_within(problem, draft, least_));
  }
}

void Family::offer_repaired(Selection& selection) const {
  for (const Repaired& member : repaired_) {
    if (selection.beaten(member.limited.seconds * (1 - hair))) continue;
    const Bytes rounding = std::min(member.limited.peak, Plan{}.alignment);
    if (member.limited.peak - rounding > selection.budget().device) continue;
    LimitedScheduler(*member.problem).complete_each(member.limited, [&](Plan plan) {
      plan.policy = "auto";
      selection.offer(std::move(plan));
    });
  }
}

// Those that may fit and beat what the selection has, fastest first as far as a sketch can tell.
std::vector<Family::Ranked> Family::ranked(const Selection& selection) {
  std::vector<Ranked> ranked;
  for (Member& member : members_) rank(member, selection, ranked);
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return *a.variant->seconds < *b.variant->seconds;
  });
  return ranked;
}

void Family::rank(Member& member, const Selection& selection, std::vector<Ranked>& ranked) {
  std::optional<Sketcher> made;
  auto sketcher = [&]() -> const Sketcher& {
    if (!made) made.emplace(*member.problem, member.choices, member.handicaps);
    return *made;
  };
  if (!member.serial_bytes) {
    member.serial_bytes = sketcher().serial_bytes();
    member.compute_seconds = sketcher().compute_seconds();
  }
  const Bytes budget = selection.budget().device;
  if (selection.beaten(member.compute_seconds) || *member.serial_bytes > budget) return;
  for (Variant& variant : member.variants) {
    if (variant.live_bytes && *variant.live_bytes > budget) continue;
    if (!variant.seconds) {
      Sketch scheduled = sketch(sketcher(), member, variant);
      variant.live_bytes = scheduled.live_peak_bytes;
      if (*variant.live_bytes > budget) continue;
      time_sketch(*member.problem, scheduled);
      variant.seconds = scheduled.step_seconds;
      variant.least_seconds = scheduled.least_seconds;
    }
    if (!selection.beaten(variant.least_seconds)) ranked.push_back({&member, &variant});
  }
}

Sketch Family::sketch(const Sketcher& sketcher, const Member& member, const Variant& variant) {
  return member.distance ? sketcher.ahead(*member.distance)
                         : sketcher.within(cap_of(variant.share, sketcher.serial_bytes()));
}

}  // namespace stowage
