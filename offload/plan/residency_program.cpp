#include "offload/plan/residency_program.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "offload/plan/extreme_choices.h"
#include "offload/plan/lane_sharing.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

using Lanes = std::array<double, share_lanes>;

// Costs that differ in rounding alone are alike.
double rough(double value) { return static_cast<double>(static_cast<float>(value)); }

void append(const Lanes& lanes, std::vector<double>& key) {
  for (const double seconds : lanes) key.push_back(rough(seconds));
}

// By position, serially.
std::vector<double> live_bytes(const Draft& draft, const BucketLayout& layout) {
  std::vector<double> live(draft.sequence.size() + 1, 0);
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    live[static_cast<std::size_t>(lifetime.first)] +=
        static_cast<double>(layout.buckets[lifetime.bucket].bytes);
    live[static_cast<std::size_t>(lifetime.last)] -=
        static_cast<double>(layout.buckets[lifetime.bucket].bytes);
  }
  for (std::size_t p = 1; p < live.size(); ++p) live[p] += live[p - 1];
  return live;
}

// Of each parameter bucket: its own bucket, that of its gradients and that of its optimizer state.
std::vector<std::vector<BucketId>> with_dependents(const BucketLayout& layout) {
  std::vector<std::vector<BucketId>> buckets(layout.buckets.size());
  for (BucketId id = 0; id < layout.buckets.size(); ++id) {
    buckets[id].push_back(id);
    if (layout.parameters_of[id] != no_id) buckets[layout.parameters_of[id]].push_back(id);
  }
  return buckets;
}

}  // namespace

ResidencyProgram::ResidencyProgram(const Problem& problem, const PlannerSettings& settings)
    : problem_(problem), settings_(settings) {
  using enum ActivationChoice;
  const Loads loads = uniform_loads();
  find_moments(loads.front());
  find_fixed();
  choose_remade();
  add_loads(loads);
  add_items({loads.front(), uniform(LoadChoice::each_op, spill), uniform(LoadChoice::each_op, offload),
             uniform(LoadChoice::each_op, keep)},
            remade());
  merge();
}

ResidencyProgram::Loads ResidencyProgram::uniform_loads() const {
  const auto& slices = problem_.layout.slices;
  const bool any_cut = std::any_of(slices.begin(), slices.end(), [](const auto& of) { return !of.empty(); });
  Loads loads;
  for (std::size_t level = 0; level < loads.size(); ++level) {
    const auto load = static_cast<LoadChoice>(level);
    if (load != LoadChoice::in_slices || any_cut) loads[level] = uniform(load, ActivationChoice::recompute);
  }
  return loads;
}

bool ResidencyProgram::has_choice(BucketId bucket, LoadChoice load) const {
  return load <= highest_load(problem_, bucket) &&
         (load != LoadChoice::in_slices || !problem_.layout.slices[bucket].empty());
}

// In slices: all of them updated on the host.
ResidencyProgram::Uniform ResidencyProgram::uniform(LoadChoice load, ActivationChoice activation) const {
  Choices choices = lowest_choices(problem_);
  for (BucketId id = 0; id < choices.loads.size(); ++id) {
    choices.loads[id] = std::min(load, highest_load(problem_, id));
    if (!has_choice(id, choices.loads[id])) choices.loads[id] = LoadChoice::held;
  }
  for (const ActivationItem& item : problem_.items)
    if (item.rebuildable || activation != ActivationChoice::recompute) choose(item, activation, choices);
  return lifetimes_of(choices);
}

// With all values made anew that cross units and may be, and the others kept.
ResidencyProgram::Uniform ResidencyProgram::remade() const {
  Choices choices = lowest_choices(problem_);
  for (std::size_t i = 0; i < problem_.items.size(); ++i)
    choose(problem_.items[i], remade_[i] ? ActivationChoice::recompute : ActivationChoice::keep, choices);
  return lifetimes_of(choices);
}

ResidencyProgram::Uniform ResidencyProgram::lifetimes_of(const Choices& choices) const {
  Uniform of;
  of.draft = Sketcher(problem_, choices).serial().draft;
  of.stages = of.draft.stages(*problem_.graph);
  of.of_bucket.resize(problem_.layout.buckets.size());
  for (LifetimeId id = 0; id < of.draft.lifetimes.size(); ++id)
    of.of_bucket[of.draft.lifetimes[id].bucket].push_back(id);
  const std::vector<double> live = live_bytes(of.draft, problem_.layout);
  for (std::size_t p = 0; p < of.stages.size(); ++p) {
    if (of.stages[p] == of.peaks.size()) of.peaks.push_back(static_cast<Position>(p));
    if (live[p] > live[static_cast<std::size_t>(of.peaks.back())]) of.peaks.back() = static_cast<Position>(p);
  }
  return of;
}

// Buckets that some decision is about.
std::vector<std::uint8_t> ResidencyProgram::decided() const {
  std::vector<std::uint8_t> decided(problem_.layout.buckets.size(), 0);
  for (BucketId id = 0; id < decided.size(); ++id)
    decided[id] =
        highest_load(problem_, id) != LoadChoice::each_op || problem_.layout.parameters_of[id] != no_id;
  for (const ActivationItem& item : problem_.items)
    for (BucketId bucket : item.buckets) decided[bucket] = 1;
  return decided;
}

// Stages at whose peak the lifetime is there.
template <typename Function>
void ResidencyProgram::for_live_stages(const Uniform& of, const DraftLifetime& lifetime,
                                       Function&& function) {
  const auto first = std::lower_bound(of.peaks.begin(), of.peaks.end(), lifetime.first);
  const auto last = std::lower_bound(first, of.peaks.end(), lifetime.last);
  for (auto peak = first; peak != last; ++peak) function(static_cast<std::uint32_t>(peak - of.peaks.begin()));
}

// Of each of as many equal runs of stages those with about the most live bytes; and the most bytes that
// nothing decides about.
void ResidencyProgram::find_moments(const Uniform& lowest) {
  stages_ = static_cast<std::uint32_t>(lowest.peaks.size());
  const std::size_t count = std::min<std::size_t>(settings_.memory_moments, stages_);
  const std::vector<double> live = live_bytes(lowest.draft, problem_.layout);
  const auto peak_of = [&](std::uint32_t stage) {
    return live[static_cast<std::size_t>(lowest.peaks[stage])];
  };
  moment_of_.assign(stages_, no_id);
  stages_of_.assign(count, 0);
  for (std::uint32_t m = 0; m < count; ++m) {
    const auto begin = static_cast<std::uint32_t>(m * stages_ / count);
    const auto end = static_cast<std::uint32_t>((m + std::size_t{1}) * stages_ / count);
    double most = 0;
    for (std::uint32_t stage = begin; stage < end; ++stage) most = std::max(most, peak_of(stage));
    for (std::uint32_t stage = begin; stage < end; ++stage)
      if (peak_of(stage) >= settings_.alike_stages * most) {
        moment_of_[stage] = m;
        ++stages_of_[m];
      }
  }
  const std::vector<std::uint8_t> decided = this->decided();
  std::vector<double> undecided(stages_, 0);
  for (const DraftLifetime& lifetime : lowest.draft.lifetimes)
    if (!decided[lifetime.bucket])
      for_live_stages(lowest, lifetime, [&](std::uint32_t stage) {
        undecided[stage] += static_cast<double>(problem_.layout.buckets[lifetime.bucket].bytes);
      });
  base_.assign(count, 0);
  for (std::uint32_t stage = 0; stage < stages_; ++stage)
    if (moment_of_[stage] != no_id)
      base_[moment_of_[stage]] = std::max(base_[moment_of_[stage]], undecided[stage]);
}

bool ResidencyProgram::in_front(const SequenceStep& step) const {
  const Op& op = problem_.graph->op(step.op);
  if (step.recompute || op.phase != Phase::forward) return false;
  return problem_.analysis.order == MicroBatchOrder::layer_major ||
         problem_.graph->micro_batch_of(op.unit) == 0;
}

// The graph's own ops, and each parameter bucket's updates.
void ResidencyProgram::find_fixed() {
  const Graph& graph = *problem_.graph;
  host_update_.assign(problem_.layout.buckets.size(), 0);
  update_.assign(problem_.layout.buckets.size(), 0);
  producer_.assign(graph.tensors.size(), no_id);
  readers_.assign(graph.tensors.size(), 0);
  makes_item_.assign(graph.ops.size(), 0);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    const Op& description = graph.op(op);
    const double seconds = op_seconds(description, *problem_.machine);
    if (description.phase != Phase::update)
      (in_front({op, false}) ? fixed_.front : fixed_.back)[share_compute] += seconds;
    for (TensorId id : description.writes) {
      if (description.phase == Phase::forward) producer_[id] = op;
      if (description.phase != Phase::update || graph.kind_of(id) != TensorKind::parameter) continue;
      host_update_[problem_.layout.bucket_of[id]] += host_seconds(description, *problem_.machine);
      update_[problem_.layout.bucket_of[id]] += seconds;
    }
    if (description.phase == Phase::forward)
      for (TensorId id : description.reads) ++readers_[id];
  }
  for (const ActivationItem& item : problem_.items) makes_item_[item.writer] = 1;
  step_seconds_ = std::max(1e-12, fixed_.front[share_compute] + fixed_.back[share_compute]);
  for (const Bucket& bucket : problem_.layout.buckets) total_bytes_ += static_cast<double>(bucket.bytes);
}

// The transfers of one bucket with these lifetimes, and its bytes at each moment: of the moment's stages that
// share in which it is there. Stages of one moment are taken to be alike.
void ResidencyProgram::add_bucket(BucketId bucket, const Uniform& of, ShareCost& cost) const {
  const Bytes bytes = problem_.layout.buckets[bucket].bytes;
  bool on_host = false;
  for (LifetimeId id : of.of_bucket[bucket]) {
    const DraftLifetime& lifetime = of.draft.lifetimes[id];
    on_host |= lifetime.prefetched || lifetime.offloaded;
    const auto lanes = [&](Position p) -> Lanes& {
      return in_front(of.draft.sequence[static_cast<std::size_t>(p)]) ? cost.front : cost.back;
    };
    if (lifetime.prefetched) lanes(lifetime.first_use)[share_h2d] += problem_.machine->h2d.seconds(bytes);
    if (lifetime.offloaded)
      lanes(lifetime.last_before_update)[share_d2h] += problem_.machine->d2h.seconds(bytes);
    add_prices(cost, lifetime.prefetched + lifetime.offloaded);
    for_live_stages(of, lifetime, [&](std::uint32_t stage) {
      if (stage >= stages_) return;  // updates of residents
      if (const std::uint32_t m = moment_of_[stage]; m != no_id)
        cost.memory[m] += static_cast<double>(bytes) / stages_of_[m];
      cost.price +=
          settings_.occupancy_price * step_seconds_ * static_cast<double>(bytes) / total_bytes_ / stages_;
    });
  }
  if (on_host) cost.memory[base_.size()] += static_cast<double>(bytes);
}

void ResidencyProgram::add_prices(ShareCost& cost, double transfers) const {
  cost.price += transfers * settings_.transfer_risk * problem_.machine->h2d.latency_seconds;
}

void ResidencyProgram::share_lanes(ShareCost& cost) const {
  const LaneSharing& sharing = problem_.sharing;
  for (Lanes* lanes : {&cost.front, &cost.back}) {
    const double in = (*lanes)[share_h2d], out = (*lanes)[share_d2h];
    (*lanes)[share_host] +=
        (in * problem_.machine->h2d.bytes_per_second + out * problem_.machine->d2h.bytes_per_second) *
        sharing.host_seconds_per_byte;
    (*lanes)[share_h2d] += out * sharing.of_out;
    (*lanes)[share_d2h] += in * sharing.of_in;
    cost.price += settings_.traffic_price * (in + out);
  }
}

// Of a parameter or input with its gradient and state: `with`.
ShareCost ResidencyProgram::load_cost(BucketId bucket, const std::vector<BucketId>& with, LoadChoice load,
                                      const Uniform& of) const {
  const bool resident = load == LoadChoice::resident;
  ShareCost cost;
  for (BucketId each : with) {
    add_bucket(each, of, cost);
    if (!resident && problem_.layout.roles[each] == BucketRole::optimizer_state)
      cost.memory[base_.size()] += static_cast<double>(problem_.layout.buckets[each].bytes);
  }
  (resident ? cost.front[share_compute] : cost.front[share_host]) +=
      resident ? update_[bucket] : host_update_[bucket];
  share_lanes(cost);
  if (!resident)
    for (const ShareLane lane : {share_compute, share_d2h}) cost.front[lane] += delay_of(bucket, of);
  return cost;
}

// How long the first op that reads a parameter in slices waits for its update on the host and for the
// transfer of the last slice, as far as what is computed before does not hide it. Nothing that ops behind it
// make can leave earlier either. For smaller parameters other lanes hide it.
double ResidencyProgram::delay_of(BucketId bucket, const Uniform& of) const {
  const std::vector<ByteRange>& slices = problem_.layout.slices[bucket];
  if (slices.empty() || of.of_bucket[bucket].empty()) return 0;
  double delay = host_update_[bucket] + problem_.machine->h2d.seconds(slices.back().bytes());
  const Position first_use = of.draft.lifetimes[of.of_bucket[bucket].front()].first_use;
  for (Position p = 0; p < first_use; ++p)
    delay -=
        op_seconds(problem_.graph->op(of.draft.sequence[static_cast<std::size_t>(p)].op), *problem_.machine);
  return std::max(0.0, delay);
}

void ResidencyProgram::add_loads(const Loads& drafts) {
  const std::vector<std::vector<BucketId>> buckets = with_dependents(problem_.layout);
  for (BucketId id = 0; id < problem_.layout.buckets.size(); ++id) {
    const LoadChoice highest = highest_load(problem_, id);
    if (highest == LoadChoice::each_op || drafts.front().of_bucket[id].empty()) continue;
    Class of;
    of.members.push_back(
        {false, id, drafts.front().draft.lifetimes[drafts.front().of_bucket[id].front()].first_use});
    for (std::size_t level = 0; level <= static_cast<std::size_t>(highest); ++level) {
      const auto load = static_cast<LoadChoice>(level);
      if (!has_choice(id, load)) continue;
      of.options.push_back(load_cost(id, buckets[id], load, drafts.at(level)));
      of.levels.push_back(static_cast<std::uint8_t>(level));
    }
    classes_.push_back(std::move(of));
  }
}

// The op once more, and ops whose results nothing but it reads and no item keeps.
double ResidencyProgram::seconds_to_rebuild(OpId op) const {
  double seconds = op_seconds(problem_.graph->op(op), *problem_.machine);
  for (TensorId id : problem_.graph->op(op).reads) {
    const OpId producer = producer_[id];
    const bool alone = producer != no_id && readers_[id] == 1 && !makes_item_[producer];
    if (alone && problem_.graph->op(producer).unit == problem_.graph->op(op).unit)
      seconds += seconds_to_rebuild(producer);
  }
  return seconds;
}

// Of a value that crosses units and the one that it is made of, one must be stored: the latter, where it
// takes longer to rebuild and is not much larger.
void ResidencyProgram::choose_remade() {
  std::vector<std::uint32_t> item_of(problem_.layout.buckets.size(), no_id);
  for (std::uint32_t i = 0; i < problem_.items.size(); ++i)
    for (BucketId bucket : problem_.items[i].buckets) item_of[bucket] = i;
  remade_.assign(problem_.items.size(), 0);
  stored_ = remade_;
  if (!settings_.remakes) return;
  for (std::size_t i = 0; i < problem_.items.size(); ++i) {
    const ActivationItem& item = problem_.items[i];
    if (item.remaker == no_id) continue;
    const Op& op = problem_.graph->op(item.remaker);
    std::vector<std::uint32_t> sources;
    for (TensorId id : op.reads)
      if (problem_.graph->tensor(id).kind == TensorKind::activation)
        sources.push_back(item_of[problem_.layout.bucket_of[id]]);
    const bool pays = std::all_of(sources.begin(), sources.end(), [&](std::uint32_t source) {
      if (source == no_id) return false;
      const ActivationItem& of = problem_.items[source];
      if (!of.rebuildable) return true;
      return of.bytes <= item.bytes + item.bytes / 4 &&
             op_seconds(op, *problem_.machine) < seconds_to_rebuild(of.writer);
    });
    if (!pays) continue;
    remade_[i] = 1;
    for (std::uint32_t source : sources)
      if (problem_.items[source].rebuildable) stored_[source] = 1;
  }
}

// An op that makes several items runs once more for all of them: its time counts for the largest.
void ResidencyProgram::add_items(const std::array<Uniform, 4>& drafts, const Uniform& remade) {
  const auto& [rebuilt, spilled, offloaded, kept] = drafts;
  std::map<OpId, const ActivationItem*> largest;
  for (const ActivationItem& item : problem_.items) {
    const ActivationItem*& most = largest[item.writer];
    if (most == nullptr || most->bytes < item.bytes) most = &item;
  }
  const std::array stores{std::pair(ActivationChoice::spill, &spilled),
                          std::pair(ActivationChoice::offload, &offloaded),
                          std::pair(ActivationChoice::keep, &kept)};
  for (std::uint32_t i = 0; i < problem_.items.size(); ++i) {
    const ActivationItem& item = problem_.items[i];
    Class of;
    of.members.push_back(
        {true, i, kept.draft.lifetimes[kept.of_bucket[item.buckets.front()].front()].first_use});
    const auto add = [&](ActivationChoice choice, const ShareCost& cost) {
      const bool alike = !of.options.empty() && of.options.back().front == cost.front &&
                         of.options.back().back == cost.back && of.options.back().memory == cost.memory;
      if (alike) return;
      of.options.push_back(cost);
      of.levels.push_back(static_cast<std::uint8_t>(choice));
    };
    if (remade_[i]) {
      ShareCost cost;
      for (BucketId bucket : item.buckets) add_bucket(bucket, remade, cost);
      share_lanes(cost);
      for (const SequenceStep& step : remade.draft.sequence)
        if (step.recompute && step.op == item.remaker)
          cost.back[share_compute] += op_seconds(problem_.graph->op(step.op), *problem_.machine);
      cost.price += settings_.replay_price * cost.back[share_compute];
      add(ActivationChoice::recompute, cost);
    }
    if (item.rebuildable && !stored_[i]) {
      ShareCost cost;
      for (BucketId bucket : item.buckets) add_bucket(bucket, rebuilt, cost);
      if (largest[item.writer] == &item) cost.back[share_compute] = seconds_to_rebuild(item.writer);
      cost.price += settings_.replay_price * cost.back[share_compute];
      add(ActivationChoice::recompute, cost);
    }
    for (const auto& [choice, draft] : stores) {
      if (choice == ActivationChoice::spill && (item.rebuildable || !settings_.spills)) continue;
      ShareCost cost;
      for (BucketId bucket : item.buckets) add_bucket(bucket, *draft, cost);
      share_lanes(cost);
      add(choice, cost);
    }
    classes_.push_back(std::move(of));
  }
}

void ResidencyProgram::merge() {
  std::map<std::vector<double>, std::size_t> kinds, known;
  std::vector<Class> merged;
  for (Class& of : classes_) {
    double most_host = 0;
    std::vector<double> key{of.members.front().is_activation ? 1.0 : 0.0};
    for (std::size_t o = 0; o < of.options.size(); ++o) {
      key.push_back(of.levels[o]);
      append(of.options[o].front, key);
      append(of.options[o].back, key);
      key.push_back(of.options[o].memory[base_.size()]);
      most_host = std::max(most_host, of.options[o].memory[base_.size()]);
    }
    most_host_ += static_cast<Bytes>(most_host);
    of.kind = kinds.emplace(key, kinds.size()).first->second;
    for (const ShareCost& option : of.options)
      key.insert(key.end(), option.memory.begin(),
                 option.memory.begin() + static_cast<std::ptrdiff_t>(base_.size()));
    const auto [at, is_new] = known.emplace(std::move(key), merged.size());
    if (is_new)
      merged.push_back(std::move(of));
    else
      merged[at->second].members.push_back(of.members.front());
  }
  classes_ = std::move(merged);
}

ResidencyProgram::Mixture ResidencyProgram::solve(Bytes device, Bytes host,
                                                  const std::optional<Fixed>& fixed) const {
  std::vector<double> room;
  for (const double base : base_) room.push_back(static_cast<double>(device) - base);
  room.push_back(host == unlimited ? static_cast<double>(most_host_) : static_cast<double>(host));
  return solve_for(room, 1, 0, fixed);
}

ResidencyProgram::Mixture ResidencyProgram::least_host(Bytes device) const {
  std::vector<double> room;
  for (const double base : base_) room.push_back(static_cast<double>(device) - base);
  room.push_back(static_cast<double>(most_host_));
  // A host byte more is never worth the time that it saves.
  return solve_for(room, 1e-3, 1, {});
}

ResidencyProgram::Mixture ResidencyProgram::solve_for(const std::vector<double>& room, double seconds_weight,
                                                      double host_weight,
                                                      const std::optional<Fixed>& fixed) const {
  const double second = seconds_weight / step_seconds_;
  const double byte = 1 / std::clamp(*std::max_element(room.begin(), room.end()), 1.0, total_bytes_);
  const auto scaled = [&](ShareCost cost) {
    cost.price = second * cost.price + host_weight * byte * cost.memory[base_.size()];
    for (Lanes* lanes : {&cost.front, &cost.back})
      for (double& seconds : *lanes) seconds *= second;
    for (double& bytes : cost.memory) bytes *= byte;
    return cost;
  };
  ShareProgram program;
  program.fixed = scaled(fixed_);
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    ShareDecision& decision = program.decisions.emplace_back();
    decision.count = static_cast<double>(classes_[c].members.size());
    if (fixed && fixed->of == c) {
      ShareCost& mixed = decision.options.emplace_back();
      for (std::size_t o = 0; o < classes_[c].options.size(); ++o)
        mixed.add(scaled(classes_[c].options[o]), fixed->shares[o]);
      continue;
    }
    for (const ShareCost& option : classes_[c].options) decision.options.push_back(scaled(option));
  }
  for (const double bytes : room) program.room.push_back(std::max(1e-3, bytes * byte));
  ShareAnswer answer = stowage::solve(program, settings_.program_tolerance);
  if (fixed) answer.shares[fixed->of] = fixed->shares;
  return {answer.value / second, answer.fits, std::move(answer.shares)};
}

}  // namespace stowage
