#include "tests/offload/oracle/witness.h"

#include <algorithm>
#include <map>

#include "src/graph/cost.h"
#include "tests/offload/oracle/exact_placement.h"

namespace stowage::oracle {
namespace {

constexpr std::size_t most_placement_nodes = 20000;
constexpr Bytes bucket_alignment = 64;

// When a stay's bytes are taken, within the period.
std::vector<Span> spans_of(const Schedule& schedule, const Stay& stay) {
  const Span all{-1, 2 * schedule.seconds + 1};
  if (stay.always) return {all};
  auto at = [](const std::vector<Span>& spans, int i) { return spans[static_cast<std::size_t>(i)]; };
  const double begin = stay.prefetch >= 0 ? at(schedule.prefetches, stay.prefetch).begin
                                          : at(schedule.compute, stay.first).begin;
  const double end =
      stay.offload >= 0 ? at(schedule.offloads, stay.offload).end : at(schedule.compute, stay.last).end;
  if (stay.wraps) return {{begin, all.end}, {all.begin, end}};
  return {{begin, end}};
}

// A slice for each moment at which some stay begins: what is there then cannot share bytes.
std::vector<PlacedItem> items_of(const Schedule& schedule) {
  const std::vector<Stay>& stays = schedule.step.stays;
  const double tolerance = 1e-9 * schedule.seconds;
  std::vector<PlacedItem> items(stays.size());
  std::vector<double> begins;
  for (std::size_t i = 0; i < stays.size(); ++i) {
    items[i].bytes = stays[i].bytes;
    for (const Span& span : spans_of(schedule, stays[i])) begins.push_back(span.begin);
  }
  std::sort(begins.begin(), begins.end());
  for (std::size_t slice = 0; slice < begins.size(); ++slice)
    for (std::size_t i = 0; i < stays.size(); ++i)
      for (const Span& span : spans_of(schedule, stays[i]))
        if (span.begin <= begins[slice] + tolerance && begins[slice] + tolerance < span.end - tolerance) {
          items[i].slices.push_back(slice);
          break;
        }
  return items;
}

class WitnessBuilder {
 public:
  WitnessBuilder(const Graph& graph, const Schedule& schedule, const std::vector<Bytes>& offsets)
      : graph_(graph), schedule_(schedule), step_(schedule.step) {
    for (const Compute& job : step_.compute) updates_ += graph.op(job.op).phase == Phase::update ? 1 : 0;
    add_buckets();
    add_lifetimes(offsets);
  }

  Plan run() {
    add_instructions();
    add_value_waits();
    add_early_waits();
    add_byte_waits();
    account();
    plan_.policy = "auto";
    return std::move(plan_);
  }

 private:
  // Places of forward and backward first, updates behind them.
  Position position_of(int compute) const {
    const int count = static_cast<int>(step_.compute.size());
    return compute < updates_ ? count - updates_ + compute : compute - updates_;
  }

  void add_buckets() {
    bucket_of_.assign(graph_.tensors.size(), no_id);
    for (const Stay& stay : step_.stays)
      if (bucket_of_[stay.tensors.front()] == no_id) open(stay.tensors);
    for (TensorId id = 0; id < graph_.tensors.size(); ++id)
      if (bucket_of_[id] == no_id) {
        open({id});
        plan_.buckets.back().residency = Residency::host;
        plan_.buckets.back().places = {{MemoryId::host, false}};
      }
  }
  void open(const std::vector<TensorId>& tensors) {
    Bucket bucket;
    bucket.name = graph_.tensor(tensors.front()).name;
    bucket.kind = graph_.tensor(tensors.front()).kind;
    for (TensorId id : tensors) {
      const Bytes at =
          bucket.bytes == 0
              ? 0
              : align_up(bucket.bytes, bucket.bytes % bucket_alignment == 0 ? bucket_alignment : 8);
      bucket.tensors.push_back({id, at});
      bucket.bytes = at + graph_.tensor(id).bytes();
      bucket_of_[id] = static_cast<BucketId>(plan_.buckets.size());
    }
    plan_.buckets.push_back(bucket);
  }

  void add_lifetimes(const std::vector<Bytes>& offsets) {
    const auto places = static_cast<Position>(step_.compute.size());
    for (std::size_t i = 0; i < step_.stays.size(); ++i) {
      const Stay& stay = step_.stays[i];
      Lifetime lifetime{bucket_of_[stay.tensors.front()], 0, places, offsets[i], no_id};
      if (!stay.always) {
        lifetime.first = stay.prefetch >= 0 ? claim_of(stay) : position_of(stay.first);
        lifetime.last = position_of(stay.last) + 1;
      }
      Bucket& bucket = plan_.buckets[lifetime.bucket];
      if (stay.always) bucket.residency = Residency::resident;
      if (stay.prefetch >= 0 || stay.offload >= 0) bucket.places = {{MemoryId::host, true}};
      plan_.lifetimes.push_back(lifetime);
    }
    for (Bucket& bucket : plan_.buckets)
      if (bucket.tensors.front().tensor == graph_.clip) bucket.places = {{MemoryId::host, true}};
  }
  // The place whose op runs, or is next, when the prefetch begins.
  Position claim_of(const Stay& stay) const {
    if (stay.first < updates_) return position_of(stay.first);
    const double begin = schedule_.prefetches[static_cast<std::size_t>(stay.prefetch)].begin;
    Position claim = 0;
    while (claim < position_of(stay.first) &&
           schedule_.compute[static_cast<std::size_t>(claim + updates_)].end <=
               begin + 1e-9 * schedule_.seconds)
      ++claim;
    return claim;
  }

  void add_instructions() {
    compute_.assign(step_.compute.size(), no_id);
    prefetch_.assign(step_.prefetches.size(), no_id);
    offload_.assign(step_.offloads.size(), no_id);
    for (int job : schedule_.order)
      if (!behind_gate(job)) add_job(job);
    for (int parameter : schedule_.early) add_early_update(parameter);
    plan_.gate = static_cast<InstructionId>(plan_.instructions.size());
    add_on_host(InstructionKind::gate, op_that_writes(graph_.clip));
    add_host_updates();
    for (int job : schedule_.order)
      if (behind_gate(job)) add_job(job);
    for (std::size_t i = 0; i < step_.stays.size(); ++i) {
      const Stay& stay = step_.stays[i];
      if (stay.always) continue;
      plan_.lifetimes[i].end = stay.offload >= 0 ? offload_[static_cast<std::size_t>(stay.offload)]
                                                 : compute_[static_cast<std::size_t>(stay.last)];
    }
  }
  bool behind_gate(int job) const {
    return (job % 3 == 0 && job / 3 < updates_) || (job == 1 && step_.has_clip);
  }
  void add_job(int job) {
    const auto i = static_cast<std::size_t>(job / 3);
    Instruction instruction;
    const auto id = static_cast<InstructionId>(plan_.instructions.size());
    if (job % 3 == 0) {
      const Compute& compute = step_.compute[i];
      instruction.kind = compute.replay                                 ? InstructionKind::recompute
                         : graph_.op(compute.op).phase == Phase::update ? InstructionKind::commit
                                                                        : InstructionKind::launch;
      instruction.op = compute.op;
      instruction.uses = uses_of(static_cast<int>(i));
      compute_[i] = id;
    } else if (job % 3 == 1) {
      instruction.kind = InstructionKind::prefetch;
      instruction.lane = LaneRole::h2d;
      instruction.lifetime = lifetime_where([&](const Stay& s) { return s.prefetch == job / 3; });
      prefetch_[i] = id;
    } else {
      instruction.kind = InstructionKind::offload;
      instruction.lane = LaneRole::d2h;
      instruction.lifetime = lifetime_where([&](const Stay& s) { return s.offload == job / 3; });
      offload_[i] = id;
    }
    plan_.instructions.push_back(instruction);
  }
  template <class Predicate>
  LifetimeId lifetime_where(Predicate&& wanted) const {
    const auto found = std::find_if(step_.stays.begin(), step_.stays.end(), wanted);
    return static_cast<LifetimeId>(found - step_.stays.begin());
  }
  std::vector<LifetimeId> uses_of(int compute) const {
    const Op& op = graph_.op(step_.compute[static_cast<std::size_t>(compute)].op);
    std::vector<LifetimeId> uses;
    for (const std::vector<TensorId>* ids : {&op.reads, &op.writes})
      for (TensorId id : *ids) {
        const LifetimeId use = lifetime_where([&](const Stay& s) {
          const bool there = s.always || (s.first <= compute && compute <= s.last) ||
                             (s.wraps && (compute <= s.last || compute >= s.first));
          return there && bucket_of_[s.tensors.front()] == bucket_of_[id];
        });
        if (std::find(uses.begin(), uses.end(), use) == uses.end()) uses.push_back(use);
      }
    return uses;
  }
  OpId op_that_writes(TensorId id) const {
    for (OpId op = static_cast<OpId>(graph_.ops.size()); op-- > 0;)
      if (writes(op, id)) return op;
    return no_id;
  }
  bool writes(OpId op, TensorId id) const {
    const std::vector<TensorId>& ids = graph_.op(op).writes;
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }
  Instruction& add_on_host(InstructionKind kind, OpId op) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.lane = LaneRole::host;
    instruction.op = op;
    plan_.instructions.push_back(instruction);
    return plan_.instructions.back();
  }
  void add_early_update(int parameter) {
    const OpId op = step_.updates[static_cast<std::size_t>(parameter)].op;
    const Bytes bytes = undo_bytes(graph_, graph_.op(op));
    add_on_host(InstructionKind::speculate, op).part = {plan_.undo_bytes, plan_.undo_bytes + bytes};
    plan_.undo_bytes += bytes;
  }
  // The commits of early ones, which have nothing to do; then late ones in the order of first prefetches.
  void add_host_updates() {
    const UpdateMask early = schedule_.choice.early;
    add_commits(early);
    for (int job : schedule_.order)
      if (job % 3 == 1) add_commits(step_.prefetches[static_cast<std::size_t>(job / 3)].updates & ~early);
  }
  void add_commits(UpdateMask updates) {
    for (std::size_t p = 0; p < step_.updates.size(); ++p) {
      if ((updates >> p & 1U) == 0) continue;
      host_step_[step_.updates[p].op] = static_cast<InstructionId>(plan_.instructions.size());
      add_on_host(InstructionKind::commit, step_.updates[p].op);
    }
  }

  void wait(InstructionId waiter, InstructionId on, std::uint32_t steps_back) {
    if (waiter == no_id || on == no_id || (waiter == on && steps_back == 0)) return;
    std::vector<Wait>& waits = plan_.instructions[waiter].waits;
    if (std::find(waits.begin(), waits.end(), Wait{on, steps_back}) == waits.end())
      waits.push_back({on, steps_back});
  }
  void add_value_waits() {
    for (InstructionId id = 0; id < plan_.instructions.size(); ++id)
      if (id < plan_.gate && plan_.instructions[id].lane != LaneRole::h2d) wait(plan_.gate, id, 0);
    for (std::size_t i = 0; i < step_.stays.size(); ++i) {
      const Stay& stay = step_.stays[i];
      if (stay.always) continue;
      if (stay.prefetch >= 0) {
        const auto p = static_cast<std::size_t>(stay.prefetch);
        wait(compute_[static_cast<std::size_t>(stay.first)], prefetch_[p], 0);
        if (step_.prefetches[p].offload >= 0)
          wait(prefetch_[p], offload_[static_cast<std::size_t>(step_.prefetches[p].offload)], 0);
        if (stay.first < updates_) wait(prefetch_[p], plan_.gate, 0);
        wait_for_updates(prefetch_[p], stay);
      }
      if (stay.offload >= 0) {
        const InstructionId offload = offload_[static_cast<std::size_t>(stay.offload)];
        wait(offload, compute_[static_cast<std::size_t>(stay.last)], 0);
        wait_for_updates(offload, stay);
      }
    }
  }
  // For the gradient, and for the last who reads the weight.
  void add_early_waits() {
    auto speculation = plan_.gate - static_cast<InstructionId>(schedule_.early.size());
    for (int parameter : schedule_.early) {
      const Update& update = step_.updates[static_cast<std::size_t>(parameter)];
      wait(speculation, prefetch_[static_cast<std::size_t>(update.prefetch)], 0);
      wait(speculation++, offload_[static_cast<std::size_t>(update.offload)], 0);
    }
  }
  // Of the step before, that read or write the bucket on the host.
  void wait_for_updates(InstructionId transfer, const Stay& stay) {
    for (const auto& [op, id] : host_step_)
      for (TensorId tensor : stay.tensors)
        if (std::find(graph_.op(op).reads.begin(), graph_.op(op).reads.end(), tensor) !=
            graph_.op(op).reads.end())
          wait(transfer, id, 1);
  }
  void add_byte_waits() {
    for (LifetimeId a = 0; a < plan_.lifetimes.size(); ++a)
      for (LifetimeId b = 0; b < plan_.lifetimes.size(); ++b) {
        const Lifetime& before = plan_.lifetimes[a];
        const Lifetime& after = plan_.lifetimes[b];
        if (a == b || step_.stays[a].always || step_.stays[b].always) continue;
        if (before.offset >= after.offset + plan_.buckets[after.bucket].bytes ||
            after.offset >= before.offset + plan_.buckets[before.bucket].bytes)
          continue;
        const std::uint32_t steps_back = before.last <= after.first ? 0 : 1;
        const Stay& ends = step_.stays[a];
        const Stay& begins = step_.stays[b];
        const InstructionId first = begins.prefetch >= 0
                                        ? prefetch_[static_cast<std::size_t>(begins.prefetch)]
                                        : compute_[static_cast<std::size_t>(begins.first)];
        wait(first, compute_[static_cast<std::size_t>(ends.last)], steps_back);
        if (ends.offload >= 0) wait(first, offload_[static_cast<std::size_t>(ends.offload)], steps_back);
      }
  }

  void account() {
    plan_.host_bytes = plan_.undo_bytes;
    for (const Bucket& bucket : plan_.buckets) {
      plan_.host_bytes += bucket.on_host() ? bucket.bytes : 0;
      plan_.pinned_bytes += bucket.pinned() ? bucket.bytes : 0;
    }
    for (const Instruction& instruction : plan_.instructions) {
      if (instruction.lifetime == no_id) continue;
      const Bytes bytes = plan_.buckets[plan_.lifetimes[instruction.lifetime].bucket].bytes;
      (instruction.kind == InstructionKind::prefetch ? plan_.h2d_bytes : plan_.d2h_bytes) += bytes;
    }
    for (const Lifetime& at : plan_.lifetimes) {
      Bytes live = 0;
      for (const Lifetime& other : plan_.lifetimes)
        if (other.first <= at.first && at.first < other.last) live += plan_.buckets[other.bucket].bytes;
      plan_.live_peak_bytes = std::max(plan_.live_peak_bytes, live);
      plan_.device_peak_bytes = std::max(plan_.device_peak_bytes, at.offset + plan_.buckets[at.bucket].bytes);
    }
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const Step& step_;
  int updates_ = 0;
  Plan plan_;
  std::vector<BucketId> bucket_of_;                          // by tensor
  std::vector<InstructionId> compute_, prefetch_, offload_;  // by job
  std::map<OpId, InstructionId> host_step_;
};

}  // namespace

std::optional<Plan> make_witness(const Graph& graph, const Schedule& schedule, Bytes device, bool& complete) {
  const ExactPlacement placed = place_exactly(items_of(schedule), device, alignment, most_placement_nodes);
  complete = placed.complete;
  if (!placed.offsets) return std::nullopt;
  return WitnessBuilder(graph, schedule, *placed.offsets).run();
}

}  // namespace stowage::oracle
