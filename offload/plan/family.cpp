#include "offload/plan/family.h"

#include <algorithm>

#include "offload/plan/limited_plans.h"
#include "offload/plan/repair.h"
#include "offload/plan/residency.h"
#include "offload/plan/tighten.h"

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
// By how much of its estimate a plan may be faster: so much, or so many times what is seen of some. Where
// that is much it is chance how much more others gain.
constexpr double least_margin = 0.002, margin_part = 1.2, much_seen = 0.005, margin_of_much = 0.025;
constexpr double probe_share = 1.1;
// Less than the simulation's rounding.
constexpr double hair = 1e-9;
// Of schedules that are alike one stands for all, if its plan is no more above its estimate, in parts of it.
// Places may cost more, at one but not at the next.
constexpr double as_estimated = 1e-3, much_lost = 5e-3;

// At most `points` of the path's choices, ends included, at even distances.
std::vector<Choices> thin(std::vector<Choices> path, std::size_t points) {
  if (path.size() <= points) return path;
  std::vector<Choices> thinned;
  for (std::size_t i = 0; i < points; ++i) thinned.push_back(path[i * (path.size() - 1) / (points - 1)]);
  return thinned;
}

// Of what takes least memory that which then takes least time. As the paths do, it ends with more memory.
Choices relaxed_choices(const Problem& problem, const PathEstimator& estimator,
                        const std::vector<Choices>& minimum) {
  std::vector<Bytes> bytes;
  for (const Choices& choices : minimum) bytes.push_back(Sketcher(problem, choices).serial_bytes());
  const auto least = std::min_element(bytes.begin(), bytes.end());
  return estimator.relaxed(minimum[static_cast<std::size_t>(least - bytes.begin())], *least);
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
std::vector<Choices> mixed_choices(const Problem& problem, const PathEstimator& estimator,
                                   const std::vector<std::vector<Choices>>& paths, std::size_t points) {
  std::vector<Choices> mixed;
  for (const std::vector<Choices>& path : paths)
    for (const Choices& base : thin(path, most_bases))
      for (Choices& choices : with_residents(problem, base)) mixed.push_back(std::move(choices));
  for (const Choices& lowest : {lowest_choices(problem), paths.front().front()})
    for (const Choices& start : with_residents(problem, lowest))
      for (Choices& choices : thin(estimator.path_from(start), points))
        if (choices != start) mixed.push_back(std::move(choices));
  return mixed;
}

// Of the schedule: choices that differ in name may have the same. Of large graphs' buckets only the bytes
// count.
std::uint64_t key_of(const Draft& draft, const Problem& problem) {
  const bool small = is_small(*problem.graph);
  std::uint64_t key = draft.sequence.size();
  auto mix = [&key](std::uint64_t value) {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;
    key = (key ^ value) * golden;
    key ^= key >> 32U;
  };
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    mix(small ? lifetime.bucket : problem.layout.buckets[lifetime.bucket].bytes);
    for (Position position :
         {lifetime.first, lifetime.last, lifetime.first_use, lifetime.last_use, lifetime.order})
      mix(static_cast<std::uint64_t>(position));
    mix((lifetime.prefetched ? 1U : 0U) + (lifetime.offloaded ? 2U : 0U) + (lifetime.resident ? 4U : 0U));
  }
  for (const SequenceStep& step : draft.sequence)
    if (step.recompute) mix(step.op);
  const Handicaps& handicaps = draft.handicaps;
  mix((handicaps.wait_for_loads ? 1U : 0U) + (handicaps.wait_for_updates ? 2U : 0U) +
      (handicaps.one_after_another ? 4U : 0U));
  return key;
}

// Of what is on the device all the time: no sketch has fewer live.
Bytes resident_bytes(const Problem& problem, const Choices& choices) {
  const BucketLayout& layout = problem.layout;
  Bytes bytes = 0;
  for (BucketId id = 0; id < layout.buckets.size(); ++id) {
    const bool state = layout.roles[id] == BucketRole::optimizer_state;
    if (!state && layout.roles[id] != BucketRole::parameter) continue;
    if (choices.loads[state ? layout.parameters_of[id] : id] == LoadChoice::resident)
      bytes += layout.buckets[id].bytes;
  }
  return bytes;
}

Bytes cap_of(double share, Bytes serial) {
  return share > 0 ? static_cast<Bytes>(share * static_cast<double>(serial)) : unlimited;
}

}  // namespace

Family::Family(const std::vector<Problem>& problems, Bytes least, std::unique_ptr<PolicyProblems> emulated)
    : least_(least), margin_(least_margin), emulated_(std::move(emulated)) {
  add_paths(problems);
  if (!is_small(*problems.front().graph)) measure_margin(problems.front());
  add_repaired(problems);
  if (emulated_) add_emulated();
}

void Family::add_members(const Problem& problem, const std::vector<Choices>& all, bool on_path) {
  for (const Choices& choices : all) {
    members_.push_back({&problem, choices, {}, {}, {}, on_path});
    for (double share : shares) members_.back().variants.emplace_back().share = share;
  }
}

// Those with most memory, which tend to be the fastest, first.
void Family::add_paths(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) {
    const std::size_t ops = problem.graph->ops.size();
    const PathEstimator estimator(problem);
    std::vector<std::vector<Choices>> paths{minimum_candidates(problem),
                                            estimator.path_from(lowest_choices(problem))};
    const bool simulated = 3 * (problem.items.size() + problem.layout.buckets.size()) * ops <= most_path_ops;
    if (simulated) paths.push_back(simulated_path(problem));
    minimum_.push_back(paths.front());
    paths.front().push_back(relaxed_choices(problem, estimator, paths.front()));
    const std::size_t members = problems.size() * paths.size() * std::size(shares) * ops;
    const std::size_t points = std::clamp(most_family_ops / members, shortest_path, longest_path);
    const std::size_t mixed_points =
        std::clamp(most_mixed_ops / (2 * resident_parts * problems.size() * std::size(shares) * ops),
                   fewest_points, most_points);
    // Simulation has seen the whole of it.
    const std::vector<Choices> mixed =
        simulated ? std::vector<Choices>{} : mixed_choices(problem, estimator, paths, mixed_points);
    for (std::vector<Choices>& path : paths) add_members(problem, thin(std::move(path), points), true);
    add_members(problem, mixed, false);
  }
  std::reverse(members_.begin(), members_.end());
}

// Plans of large graphs may be faster than their estimates where places let what begins early have the bytes
// that are left first. How much is seen from two of the family with little memory, whatever the budget.
void Family::measure_margin(const Problem& problem) {
  std::vector<const Member*> path;
  for (const Member& member : members_)
    if (member.problem == &problem && member.on_path) path.push_back(&member);
  double gain = 0;
  for (const Member* member : {path[2 * path.size() / 3], path.back()}) {
    const Sketcher sketcher(problem, member->choices);
    Sketch probe = sketcher.within(cap_of(probe_share, sketcher.serial_bytes()));
    time_sketch(problem, probe, 0);
    if (const auto tight = placed_tight(problem, probe.draft))
      gain = std::max(gain, 1 - tight->predicted_step_seconds / probe.step_seconds);
  }
  margin_ = std::clamp(margin_part * gain, gain > much_seen ? margin_of_much : least_margin, tightening_gain);
}

// What the emulated systems would do is in the family too, so that none of them is faster.
void Family::add_emulated() {
  std::vector<Member> emulated;
  for (PolicyMember& member : all_policy_members(*emulated_))
    emulated.push_back({member.problem,
                        std::move(member.choices),
                        member.handicaps,
                        member.distance,
                        {Variant{}},
                        false,
                        true});
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

// The fastest first, as far as a sketch can tell. Of a large graph's members those variants that leave their
// transfers less memory are looked at when the member's turn has come.
void Family::offer_to(Selection& selection, Offered& offered) {
  offer_repaired(selection);
  Queue queue;
  std::size_t turns = 0;
  for (Member& member : members_) begin(member, selection, queue, turns);
  while (!queue.empty()) {
    const Turn turn = queue.top();
    queue.pop();
    if (selection.beaten(turn.least_seconds)) continue;
    if (turn.variant == nullptr)
      expand(*turn.member, selection, queue, turns);
    else if (is_small(*turn.member->problem->graph) || offered.add(turn.variant->key))
      offer_variant(*turn.member, *turn.variant, selection, offered);
  }
}

void Family::offer_variant(Member& member, Variant& variant, Selection& selection, Offered& offered) {
  const Problem& problem = *member.problem;
  const bool small = is_small(*problem.graph);
  if (*variant.live_bytes > least_ && variant.peak_bytes && cannot_win(variant, small, selection)) return;
  const auto is_settled = [&] {
    return variant.estimate->bound_seconds && selection.settled(*variant.estimate->bound_seconds);
  };
  if (is_settled()) return;
  const Draft draft = sketch(sketcher_of(member), member, variant).draft;
  const Offered::Alike alike{variant.estimate->seconds, *variant.live_bytes,
                             small ? 0 : host_bytes(problem, draft)};
  if (!small && selection.lacks_host(alike.host_bytes)) return;
  if (!small && *variant.live_bytes > least_ && offered.has_alike(alike)) return;
  if (!small && !variant.estimate->bound_seconds)
    variant.estimate->bound_seconds = least_seconds(problem, draft);
  if (is_settled()) return;
  const double seconds = offer_plans(problem, draft, variant, alike, selection, offered);
  if (!small && seconds <= alike.seconds * (1 + as_estimated)) offered.add(alike);
}

void Family::match_emulated(Selection& selection) const {
  for (const Member& member : members_) {
    if (!selection.passed_over()) return;
    if (!member.emulated || !member.serial_bytes || selection.beaten(member.compute_seconds)) continue;
    const Sketcher sketcher(*member.problem, member.choices, member.handicaps);
    for (const Variant& variant : member.variants) {
      const Sketch scheduled = sketch(sketcher, member, variant);
      if (scheduled.live_peak_bytes > selection.budget().device) continue;
      if (selection.beaten(least_seconds(*member.problem, scheduled.draft))) continue;
      const Plan plan = complete(*member.problem, scheduled.draft);
      const double seconds = plan.predicted_step_seconds * (1 + hair);
      if (selection.fits(plan) && !selection.beaten(seconds)) selection.keep_fastest();
    }
  }
}

// Of a large graph a tight plan where there is one that fits, so that each budget has plans as fast as
// smaller ones have. What might fit the smallest budget is placed for that too, whatever the budget at hand:
// so the family depends on none.
double Family::offer_plans(const Problem& problem, const Draft& draft, Variant& variant,
                           const Offered::Alike& alike, Selection& selection, Offered& offered) const {
  const double least_seconds = variant.estimate->least_seconds;
  auto offer = [&](Plan plan) {
    if (plan.predicted_step_seconds < least_seconds) return;
    plan.policy = "auto";
    selection.offer(std::move(plan));
  };
  Plan plan = complete(problem, draft);
  plan.policy = "auto";
  double seconds = plan.predicted_step_seconds;
  variant.peak_bytes = plan.device_peak_bytes;
  variant.plan_seconds = seconds;
  const bool wanted = !is_small(*problem.graph) && wants_tight(plan, variant, selection);
  const bool tight = is_tight(plan);
  if (wanted && offered.has_loose_alike(alike)) {
    if (!tight && seconds >= least_seconds && !selection.beaten(seconds))
      offered.add({&problem, draft, plan, alike, least_seconds, true, &variant.estimate->searched});
  } else if (wanted) {
    const Bytes budget = selection.budget().device;
    std::optional<Plan> found;
    if (!variant.estimate->never_tight)
      found = tightened(problem, draft, plan, budget, {least_seconds, alike.seconds * (1 + as_estimated)});
    if (!found && *variant.live_bytes + *variant.live_bytes / 100 <= budget)
      variant.estimate->never_tight = true;
    if (found) {
      const double of_found = found->predicted_step_seconds;
      offer(std::move(*found));
      if (!tight) return of_found;
      seconds = std::min(seconds, of_found);
    } else if (!tight && seconds >= least_seconds && !selection.settled(seconds * (1 - tightening_change))) {
      offered.add({&problem, draft, plan, alike, least_seconds, false, &variant.estimate->searched});
    }
  }
  offer(std::move(plan));
  const bool for_least = *variant.live_bytes <= least_;
  if (for_least && *variant.peak_bytes > least_ && draft.lifetimes.size() > searched_anyway)
    offer(complete_within(problem, draft, least_));
  return seconds;
}

// A plan that is not tight, or loses much of what was estimated by where its lifetimes stand.
bool Family::wants_tight(const Plan& plan, const Variant& variant, const Selection& selection) {
  const double seconds = plan.predicted_step_seconds;
  if (is_tight(plan) && seconds <= variant.estimate->seconds * (1 + much_lost)) return false;
  const bool may_fit =
      plan.host_bytes <= selection.budget().host || plan.device_peak_bytes > selection.budget().device;
  return may_fit && seconds * (1 + tightening_change) >= variant.estimate->least_seconds &&
         !selection.beaten(seconds * (1 - tightening_gain));
}

// Of a variant that has been completed before.
bool Family::cannot_win(const Variant& variant, bool small, const Selection& selection) {
  if (!small)
    return selection.settled(variant.plan_seconds) &&
           selection.beaten(variant.plan_seconds * (1 - tightening_gain));
  return *variant.peak_bytes > selection.budget().device || selection.beaten(variant.plan_seconds);
}

void Family::offer_repaired(Selection& selection) const {
  for (const Repaired& member : repaired_) {
    if (selection.beaten(member.limited.seconds * (1 - hair))) continue;
    const Bytes rounding = std::min(member.limited.peak, Plan{}.alignment);
    if (member.limited.peak - rounding > selection.budget().device) continue;
    const LimitedScheduler scheduler(*member.problem);
    complete_each(scheduler, member.limited, selection.budget().device, [&](Plan plan) {
      plan.policy = "auto";
      selection.offer(std::move(plan));
    });
  }
}

// What its variant without a cap takes is what a large graph's member may take at best.
void Family::begin(Member& member, const Selection& selection, Queue& queue, std::size_t& turns) {
  if (resident_bytes(*member.problem, member.choices) > selection.budget().device) return;
  if (!member.serial_bytes) {
    member.serial_bytes = sketcher_of(member).serial_bytes();
    member.compute_seconds = sketcher_of(member).compute_seconds();
  }
  if (selection.beaten(member.compute_seconds) || *member.serial_bytes > selection.budget().device) return;
  if (is_small(*member.problem->graph)) return expand(member, selection, queue, turns);
  Variant& uncapped = member.variants.back();
  if (uncapped.estimate == nullptr) judge(member, uncapped);
  queue.push({uncapped.estimate->seconds, uncapped.estimate->least_seconds, 0, turns++, &member, nullptr});
}

void Family::expand(Member& member, const Selection& selection, Queue& queue, std::size_t& turns) {
  const Bytes budget = selection.budget().device;
  const bool small = is_small(*member.problem->graph);
  Variant& uncapped = member.variants.back();
  if (!small) {
    std::optional<double>& bound = uncapped.estimate->bound_seconds;
    if (selection.best() && !bound)
      bound = least_seconds(*member.problem, sketch(sketcher_of(member), member, uncapped).draft);
    if (bound && selection.settled(*bound)) return;
  }
  for (Variant& variant : member.variants) {
    if (variant.live_bytes && *variant.live_bytes > budget) continue;
    // What has no use for more bytes than its cap lets it have is scheduled as without.
    if (!small && variant.share > 0 && cap_of(variant.share, *member.serial_bytes) >= *uncapped.live_bytes)
      continue;
    if (variant.estimate == nullptr) judge(member, variant);
    const Estimate& estimate = *variant.estimate;
    if (*variant.live_bytes > budget || selection.beaten(estimate.least_seconds)) continue;
    if (!small && estimate.seconds < uncapped.estimate->least_seconds) continue;
    queue.push({estimate.seconds, estimate.least_seconds, small ? 0 : *variant.live_bytes, turns++, &member,
                &variant});
  }
}

void Family::judge(const Member& member, Variant& variant) {
  Sketch scheduled = sketch(sketcher_of(member), member, variant);
  variant.live_bytes = scheduled.live_peak_bytes;
  variant.key = key_of(scheduled.draft, *member.problem);
  const auto [at, is_new] = estimates_.try_emplace({member.problem, variant.key});
  variant.estimate = &at->second;
  if (!is_new) return;
  time_sketch(*member.problem, scheduled, margin_);
  *variant.estimate = {scheduled.step_seconds, scheduled.least_seconds, {}};
}

const Sketcher& Family::sketcher_of(const Member& member) {
  if (at_hand_ != &member) {
    at_hand_ = nullptr;
    sketcher_.emplace(*member.problem, member.choices, member.handicaps);
    at_hand_ = &member;
  }
  return *sketcher_;
}

Sketch Family::sketch(const Sketcher& sketcher, const Member& member, const Variant& variant) {
  return member.distance ? sketcher.ahead(*member.distance)
                         : sketcher.within(cap_of(variant.share, sketcher.serial_bytes()));
}

}  // namespace stowage
