#include "offload/plan/schedule/candidate.h"

#include <algorithm>
#include <utility>

#include "offload/plan/schedule/claims.h"
#include "offload/plan/schedule/fluid.h"
#include "offload/plan/schedule/gradient_ring.h"
#include "offload/plan/schedule/instructions.h"
#include "src/graph/cost.h"
#include "stowage/error.h"
#include "stowage/placement.h"

namespace stowage {
namespace {

std::vector<PlacementItem> placement_items(const Problem& problem, const Draft& draft) {
  std::vector<PlacementItem> items;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    items.push_back({lifetime.first, lifetime.last, problem.layout.buckets[lifetime.bucket].bytes});
  return items;
}

Plan start_plan(const std::vector<Bucket>& buckets, const Draft& draft) {
  Plan plan;
  plan.buckets = buckets;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    plan.lifetimes.push_back({lifetime.bucket, lifetime.first, lifetime.last, 0, no_id});
  return plan;
}

struct BucketUse {
  int lifetimes = 0;
  bool transferred = false, resident = false, reloaded = false, rebuilt = false;
};

std::vector<BucketUse> bucket_uses(const Problem& problem, const Draft& draft) {
  std::vector<BucketUse> uses(problem.layout.buckets.size());
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    BucketUse& use = uses[lifetime.bucket];
    if (!lifetime.copy) ++use.lifetimes;
    use.transferred |= lifetime.prefetched || lifetime.offloaded;
    use.resident |= lifetime.resident;
    use.reloaded |= lifetime.prefetched;
    use.rebuilt |= draft.sequence[static_cast<std::size_t>(lifetime.first_use)].recompute &&
                   !lifetime.prefetched && !lifetime.copy;
  }
  return uses;
}

Residency residency_of(BucketRole role, const BucketUse& use) {
  if (use.resident) return Residency::resident;
  if (use.lifetimes == 0) return Residency::host;
  if (role == BucketRole::parameter || role == BucketRole::input || role == BucketRole::clip)
    return use.lifetimes == 1 ? Residency::held : Residency::streamed;
  if (role == BucketRole::activation && use.reloaded) return Residency::offloaded;
  if (use.reloaded) return Residency::streamed;  // the bucket holds a gradient
  if (use.rebuilt && use.lifetimes > 1) return Residency::recomputed;
  return Residency::transient;
}

bool is_pinned(BucketRole role, const BucketUse& use) { return use.transferred || role == BucketRole::clip; }
bool is_on_host(BucketRole role, const BucketUse& use) {
  return is_pinned(role, use) || (role == BucketRole::optimizer_state && !use.resident);
}

void decide_residency(const Problem& problem, const Draft& draft, const GradientRing& ring, Plan& plan) {
  std::vector<BucketUse> uses = bucket_uses(problem, draft);
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    Bucket& bucket = plan.buckets[id];
    BucketRole role = problem.layout.roles[id];
    bucket.residency = residency_of(role, uses[id]);
    if (is_on_host(role, uses[id])) bucket.places = {{MemoryId::host, is_pinned(role, uses[id])}};
  }
  plan.ring_bytes = ring.bytes;
  for (const auto& [bucket, turn] : ring.turns) {
    BucketPlace& place = plan.buckets[bucket].places[0];
    place.ring_offset = turn.offset;
    if (turn.slices > 0) place.ring_span = problem.layout.slices[bucket][turn.slices].begin;
  }
}

// `half_clipped_seconds`: every step speculates and every other step is clipped, so it is the mean of the
// times of both. `clipped_seconds`: every step is clipped and, as the engine expects that, none speculates.
void predict(const Problem& problem, Plan& plan) {
  const auto timeline = [&](Clipping clipping) {
    return simulate(*problem.graph, plan, *problem.machine, problem.speeds, clipping);
  };
  const Timeline usual = timeline(Clipping::none);
  plan.predicted_step_seconds = usual.step_seconds;
  plan.predicted_stall_seconds = usual.stall_seconds;
  plan.half_clipped_seconds = plan.clipped_seconds = usual.step_seconds;
  if (plan.undo_bytes == 0) return;
  plan.half_clipped_seconds = (usual.step_seconds + timeline(Clipping::unexpected).step_seconds) / 2;
  plan.clipped_seconds = timeline(Clipping::expected).step_seconds;
}

void account(const Problem& problem, Plan& plan) {
  for (const Bucket& bucket : plan.buckets) {
    if (bucket.in_ring()) continue;
    if (bucket.on_host()) plan.host_bytes += bucket.bytes;
    if (bucket.pinned()) plan.pinned_bytes += bucket.bytes;
  }
  plan.pinned_bytes += plan.ring_bytes;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.lifetime == no_id) continue;
    const Bytes bytes = moved_bytes(plan, instruction).bytes();
    (instruction.kind == InstructionKind::prefetch ? plan.h2d_bytes : plan.d2h_bytes) += bytes;
  }
  plan.host_bytes += plan.ring_bytes + plan.undo_bytes;
  predict(problem, plan);
  plan.bucket_bytes = problem.layout.target_bytes;
}

}  // namespace

namespace {

Draft drafted(const Problem& problem, const Choices& choices, std::uint32_t gathers_ahead = 0) {
  Draft draft = make_lifetimes(*problem.graph, problem.analysis, problem.layout, choices, gathers_ahead);
  draft.early_updates = problem.early_updates;
  return draft;
}

}  // namespace

Sketcher::Sketcher(const Problem& problem, const Choices& choices)
    : problem_(problem),
      choices_(choices),
      draft_(drafted(problem, choices)),
      durations_(durations_of(draft_)),
      serial_bytes_(serial_peak_bytes(draft_, problem.layout)) {}

Sketch Sketcher::serial() const { return measured(schedule_serially(draft_)); }

Durations Sketcher::durations_of(const Draft& draft) const {
  return make_durations(*problem_.graph, draft, problem_.layout, problem_.contended);
}

Sketch Sketcher::within(Bytes cap, std::uint32_t gathers_ahead) const {
  if (problem_.layout.has_peers && gathers_ahead > 0) {
    Draft ahead = drafted(problem_, choices_, gathers_ahead);
    if (serial_peak_bytes(ahead, problem_.layout) <= cap) {
      const Durations durations = durations_of(ahead);
      return measured(schedule_within(std::move(ahead), durations, problem_.layout, {.cap = cap}));
    }
  }
  return measured(schedule_within(draft_, durations_, problem_.layout, {.cap = cap}));
}

Sketch Sketcher::ahead(std::uint32_t distance) const {
  if (distance == 0) return serial();
  return measured(schedule_within(draft_, durations_, problem_.layout, {.distance = distance}));
}

Sketch Sketcher::measured(Draft draft) const {
  problem_.throw_if_cancelled();
  const Bytes live = scheduled_peak_bytes(draft, problem_.layout);
  return {std::move(draft), live};
}

double least_seconds(const Problem& problem, const Draft& draft, const AddWaits& more) {
  problem.throw_if_cancelled();
  Plan plan = start_plan(problem.sizes, draft);
  make_instructions(*problem.graph, problem.layout, draft, gradient_ring(draft, problem.layout),
                    ByteWaits::none, plan);
  if (more) more(draft, plan);
  return simulate(*problem.graph, plan, without_contention(*problem.machine)).step_seconds;
}

double estimated_seconds(const Problem& problem, const Sketch& sketch) {
  problem.throw_if_cancelled();
  Plan plan = start_plan(problem.sizes, sketch.draft);
  const Bytes cap = sketch.live_peak_bytes + sketch.live_peak_bytes / 100;
  const Draft early = Claims(sketch.draft, problem.layout).within(cap);
  make_instructions(*problem.graph, problem.layout, early, gradient_ring(early, problem.layout),
                    ByteWaits::by_amount, plan);
  return simulate(*problem.graph, plan, *problem.machine, problem.speeds).step_seconds;
}

Bytes host_bytes(const Problem& problem, const Draft& draft) {
  const std::vector<BucketUse> uses = bucket_uses(problem, draft);
  Bytes bytes = 0;
  for (BucketId id = 0; id < uses.size(); ++id)
    if (is_on_host(problem.layout.roles[id], uses[id])) bytes += problem.layout.buckets[id].bytes;
  if (draft.early_updates == EarlyUpdates::final) {
    const GradientRing ring = gradient_ring(draft, problem.layout);
    for (const auto& [bucket, turn] : ring.turns) bytes -= problem.layout.buckets[bucket].bytes;
    return bytes + ring.bytes;
  }
  for (BucketId id = 0; id < draft.speculated.size(); ++id)
    if (draft.speculates(id)) bytes += problem.undo_bytes[id];
  return bytes;
}

Plan complete(const Problem& problem, const Draft& draft, const AddWaits& more) {
  return complete_at(problem, draft, place(placement_items(problem, draft), Plan{}.alignment).offsets, more);
}

Plan complete_at(const Problem& problem, const Draft& draft, const std::vector<Bytes>& offsets,
                 const AddWaits& more) {
  problem.throw_if_cancelled();
  Plan plan = start_plan(problem.layout.buckets, draft);
  plan.order = problem.analysis.order;
  for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) {
    const Bytes end = offsets[id] + plan.buckets[plan.lifetimes[id].bucket].bytes;
    plan.lifetimes[id].offset = offsets[id];
    plan.device_peak_bytes = std::max(plan.device_peak_bytes, end);
  }
  plan.live_peak_bytes = scheduled_peak_bytes(draft, problem.layout);
  const GradientRing ring = gradient_ring(draft, problem.layout);
  make_instructions(*problem.graph, problem.layout, draft, ring, ByteWaits::by_address, plan);
  if (more) more(draft, plan);
  decide_residency(problem, draft, ring, plan);
  account(problem, plan);
  return plan;
}

std::string tightest_op(const Problem& problem, const Draft& draft) {
  std::vector<Bytes> live(draft.sequence.size(), 0);
  for (const DraftLifetime& lifetime : draft.lifetimes)
    for (Position p = lifetime.first; p < lifetime.last; ++p)
      live[static_cast<std::size_t>(p)] += problem.layout.buckets[lifetime.bucket].bytes;
  auto most = std::max_element(live.begin(), live.end()) - live.begin();
  return problem.graph->op(draft.sequence[static_cast<std::size_t>(most)].op).name;
}

}  // namespace stowage
