#include "offload/plan/decisions/decision_classes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/decisions/prices.h"
#include "offload/plan/problem/lane_speeds.h"
#include "offload/plan/schedule/candidate.h"
#include "offload/plan/schedule/gradient_ring.h"
#include "offload/recompute/execution_order.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

using Lanes = ShareTimes;

// Rounds a cost, so that costs that differ by rounding errors alone compare as equal.
double rough(double value) { return static_cast<double>(static_cast<float>(value)); }

void append(const Lanes& lanes, std::vector<double>& key) {
  for (const double seconds : lanes) key.push_back(rough(seconds));
}

// Returns, by parameter bucket, the bucket itself and the buckets of its gradients and optimizer state.
std::vector<std::vector<BucketId>> with_dependents(const BucketLayout& layout) {
  std::vector<std::vector<BucketId>> buckets(layout.buckets.size());
  for (BucketId id = 0; id < layout.buckets.size(); ++id) {
    buckets[id].push_back(id);
    if (layout.parameters_of[id] != no_id) buckets[layout.parameters_of[id]].push_back(id);
  }
  return buckets;
}

}  // namespace

DecisionClasses::DecisionClasses(const Problem& problem, const PlannerSettings& settings)
    : problem_(problem),
      settings_(settings),
      times_(problem),
      remakes_(settings.remakes ? times_.find_remakes() : OpTimes::no_remakes(problem)),
      memory_(problem, settings),
      with_dependents_(with_dependents(problem.layout)) {
  using enum ActivationChoice;
  cuts_ =
      find_cuts(problem, settings.cuts ? share_cuts - std::min(share_cuts, settings.cut_shares.size()) : 0);
  find_fixed();
  for (const auto& [load, activation] :
       {std::pair(LoadChoice::each_op, recompute), std::pair(LoadChoice::each_unit, recompute),
        std::pair(LoadChoice::held, recompute), std::pair(LoadChoice::in_slices, recompute),
        std::pair(LoadChoice::resident, recompute), std::pair(LoadChoice::each_op, spill),
        std::pair(LoadChoice::each_op, offload), std::pair(LoadChoice::each_op, keep)})
    memory_.add(uniform(load, activation));
  memory_.add(remade());
  memory_.find_rows();
  build();
}

void DecisionClasses::build() {
  classes_.clear();
  fixed_ = {};
  most_host_ = 0;
  find_fixed();
  add_loads();
  add_items();
  merge();
}

void DecisionClasses::add_cut(const std::vector<std::vector<double>>& shares) {
  if (cuts_.front.empty()) return;
  std::vector<double> host(problem_.graph->ops.size(), 0);
  for (std::size_t c = 0; c < classes_.size(); ++c)
    for (std::size_t o = 0; o < classes_[c].options.size(); ++o)
      for (const Member& member : classes_[c].members)
        host[first_op(member)] += shares[c][o] * classes_[c].options[o].front[share_host];
  cuts_.cut_front(problem_, host);
  build();
}

OpId DecisionClasses::first_op(const Member& member) const {
  if (member.is_activation) return problem_.items[member.index].writer;
  return cuts_.first_read[problem_.layout.buckets[member.index].tensors.front().tensor];
}

// Returns the choices of a uniform step. For a bucket in slices the host updates all slices.
Choices DecisionClasses::uniform(LoadChoice load, ActivationChoice activation) const {
  Choices choices = lowest_choices(problem_);
  for (BucketId id = 0; id < choices.loads.size(); ++id) {
    choices.loads[id] = std::min(load, highest_load(problem_, id));
    if (!has_choice(id, choices.loads[id])) choices.loads[id] = LoadChoice::held;
  }
  for (const ActivationItem& item : problem_.items)
    if (item.rebuildable || activation != ActivationChoice::recompute) choose(item, activation, choices);
  return choices;
}

bool DecisionClasses::has_choice(BucketId bucket, LoadChoice load) const {
  return load <= highest_load(problem_, bucket) &&
         (load != LoadChoice::in_slices || !problem_.layout.slices[bucket].empty());
}

// Returns the choices in which each value that may be remade is, and all other items are kept.
Choices DecisionClasses::remade() const {
  Choices choices = lowest_choices(problem_);
  for (std::size_t i = 0; i < problem_.items.size(); ++i)
    choose(problem_.items[i], remakes_.remade[i] ? ActivationChoice::recompute : ActivationChoice::keep,
           choices);
  return choices;
}

bool DecisionClasses::in_front(const SequenceStep& step) const {
  const Op& op = problem_.graph->op(step.op);
  if (step.recompute || op.phase != Phase::forward) return false;
  const MicroBatchOrder order = problem_.analysis.order;
  return order.is_layer_major || is_before_first_backward(*problem_.graph, order, op.unit);
}

void DecisionClasses::add_own(OpId op, double seconds) {
  const bool front = in_front({op, false});
  times_.add(op, front ? fixed_.front : fixed_.back);
  if (times_.lane_of(op) == share_compute) cuts_.add_op(op, front, seconds, fixed_);
}

// Computes the cost of the graph's own ops, and the seconds of each parameter bucket's updates.
void DecisionClasses::find_fixed() {
  const Graph& graph = *problem_.graph;
  host_update_.assign(problem_.layout.buckets.size(), 0);
  early_update_.assign(problem_.layout.buckets.size(), 0);
  update_.assign(problem_.layout.buckets.size(), 0);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    const Op& description = graph.op(op);
    const double seconds = op_seconds(description, *problem_.machine);
    if (description.phase != Phase::update) add_own(op, seconds);
    for (TensorId id : description.writes) {
      if (description.phase != Phase::update || graph.kind_of(id) != TensorKind::parameter) continue;
      host_update_[problem_.layout.bucket_of[id]] += host_seconds(description, *problem_.machine);
      early_update_[problem_.layout.bucket_of[id]] += problem_.early_seconds(description);
      update_[problem_.layout.bucket_of[id]] += seconds;
    }
  }
  step_seconds_ = std::max(1e-12, fixed_.front[share_compute] + fixed_.back[share_compute]);
  total_bytes_ = 1;
  for (const Bucket& bucket : problem_.layout.buckets) total_bytes_ += static_cast<double>(bucket.bytes);
}

// Adds the cost of one bucket with its lifetimes in a uniform step: its transfers, and its bytes in each
// memory row. The stages of a row are taken to be alike, so the bucket counts by the fraction of these stages
// in which it is live.
void DecisionClasses::add_bucket(BucketId bucket, const StepMemory::Uniform& of, ShareCost& cost) const {
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
    const std::uint32_t stages = memory_.add_lifetime(lifetime, of, cost);
    cost.price += settings_.occupancy_price * step_seconds_ * stages / memory_.stages() *
                  static_cast<double>(bytes) / total_bytes_;
  }
  if (on_host) cost.memory[base().size()] += static_cast<double>(bytes);
}

void DecisionClasses::add_prices(ShareCost& cost, double transfers) const {
  cost.price += transfers * transfer_price(*problem_.machine, settings_);
}

// Adds the time that the transfers of `cost` take from the lanes that they slow, and the price of their
// traffic. `first`: the first op that uses the moved bytes.
void DecisionClasses::add_sharing(OpId first, ShareCost& cost) const {
  const LaneSharing& sharing = problem_.sharing;
  for (Lanes* lanes : {&cost.front, &cost.back}) {
    const double in = (*lanes)[share_h2d], out = (*lanes)[share_d2h];
    const double host =
        (in * problem_.machine->h2d.bytes_per_second + out * problem_.machine->d2h.bytes_per_second) *
        sharing.host_seconds_per_byte;
    (*lanes)[share_host] += host;
    if (lanes == &cost.front) cuts_.add_before(first, host, cost);
    (*lanes)[share_h2d] += out * sharing.of_out;
    (*lanes)[share_d2h] += in * sharing.of_in;
    cost.price += settings_.traffic_price * (in + out);
  }
}

void DecisionClasses::add_cut_updates(BucketId id, bool speculates, ShareCost& cost) const {
  const Bucket& bucket = problem_.layout.buckets[id];
  for (const BucketTensor& of : bucket.tensors) {
    if (problem_.graph->is_slice(of.tensor)) continue;
    const auto bytes = static_cast<double>(problem_.graph->tensor(of.tensor).bytes());
    const double share = bytes / static_cast<double>(bucket.bytes);
    cuts_.add_offload(of.tensor, bytes / problem_.machine->d2h.bytes_per_second, cost);
    if (speculates)
      cuts_.add_early_update(of.tensor, early_update_[id] * share, cost);
    else
      cuts_.add_update(of.tensor, host_update_[id] * share, cost);
  }
}

void DecisionClasses::add_loads() {
  for (BucketId id = 0; id < problem_.layout.buckets.size(); ++id) {
    const LoadChoice highest = highest_load(problem_, id);
    if (highest == LoadChoice::each_op || memory_[0].of_bucket[id].empty()) continue;
    Class of;
    of.members.push_back({false, id, memory_[0].draft.lifetimes[memory_[0].of_bucket[id].front()].first_use});
    for (std::size_t level = 0; level <= static_cast<std::size_t>(highest); ++level)
      if (has_choice(id, static_cast<LoadChoice>(level))) add_load(id, static_cast<LoadChoice>(level), of);
    classes_.push_back(std::move(of));
  }
}

// Adds the options of one LoadChoice. Unless it is resident, these are one with a late update on the host
// and, if possible, one with an early update.
void DecisionClasses::add_load(BucketId id, LoadChoice load, Class& of) const {
  const auto level = static_cast<std::uint8_t>(load);
  ShareCost cost;
  for (BucketId each : with_dependents_[id]) {
    add_bucket(each, memory_[level], cost);
    if (load != LoadChoice::resident && problem_.layout.roles[each] == BucketRole::optimizer_state)
      cost.memory[base().size()] += static_cast<double>(problem_.layout.buckets[each].bytes);
  }
  add_sharing(cuts_.first_read[problem_.layout.buckets[id].tensors.front().tensor], cost);
  if (load == LoadChoice::resident) {
    cost.front[share_compute] += update_[id];
    of.options.push_back(cost);
    of.levels.push_back(level);
    return;
  }
  const bool may_speculate =
      settings_.speculates && problem_.undo_bytes[id] > 0 && load != LoadChoice::in_slices;
  for (const bool speculates : {false, true}) {
    if (speculates && !may_speculate) break;
    ShareCost& option = of.options.emplace_back(cost);
    of.levels.push_back(speculates ? level | speculated : level);
    add_update(id, speculates, option);
    if (speculates) option.memory[base().size()] += early_host_bytes(id, memory_[level]);
  }
}

// Returns the host bytes that an early update takes beyond a late one; they are negative if it saves bytes. A
// gradient in the gradient ring counts as its part of the ring instead of bytes of its own.
double DecisionClasses::early_host_bytes(BucketId id, const StepMemory::Uniform& of) const {
  if (problem_.early_updates == EarlyUpdates::undoable) return static_cast<double>(problem_.undo_bytes[id]);
  double saved = 0;
  for (const BucketId each : with_dependents_[id]) {
    if (problem_.layout.roles[each] != BucketRole::gradient) continue;
    const std::vector<LifetimeId>& lifetimes = of.of_bucket[each];
    const bool rests = std::any_of(lifetimes.begin(), lifetimes.end(), [&](LifetimeId lifetime) {
      return of.draft.lifetimes[lifetime].prefetched;
    });
    const auto bytes = static_cast<double>(problem_.layout.buckets[each].bytes);
    if (!rests) saved += bytes - bytes / ring_part;
  }
  return -saved;
}

void DecisionClasses::add_update(BucketId id, bool speculates, ShareCost& cost) const {
  (speculates ? cost.back : cost.front)[share_host] += speculates ? early_update_[id] : host_update_[id];
  if (highest_load(problem_, id) == LoadChoice::resident) add_cut_updates(id, speculates, cost);
  // If a late and an early update take the same time, the late one is better than a speculated one. An early
  // update that is made for good is better than a late one, since it takes less host memory.
  if (speculates != (problem_.early_updates == EarlyUpdates::final))
    cost.price += settings_.speculation_price * early_update_[id];
}

// Adds a class for each item. An op that makes several items rebuilds all of them in one run, so its time
// counts only for the largest item that has the choice.
void DecisionClasses::add_items() {
  const StepMemory::Uniform &rebuilt = memory_[0], &spilled = memory_[5], &offloaded = memory_[6],
                            &kept = memory_[7], &remade = memory_[8];
  const auto is_rebuilt = [&](std::size_t i) { return problem_.items[i].rebuildable && !remakes_.stored[i]; };
  std::map<OpId, const ActivationItem*> largest_rebuilt, largest_remade;
  const auto count = [](const ActivationItem& item, const ActivationItem*& largest) {
    if (largest == nullptr || largest->bytes < item.bytes) largest = &item;
  };
  for (std::size_t i = 0; i < problem_.items.size(); ++i) {
    const ActivationItem& item = problem_.items[i];
    if (is_rebuilt(i)) count(item, largest_rebuilt[item.writer]);
    if (remakes_.remade[i]) count(item, largest_remade[item.remaker]);
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
    if (remakes_.remade[i]) {
      ShareCost cost;
      for (BucketId bucket : item.buckets) add_bucket(bucket, remade, cost);
      add_sharing(item.writer, cost);
      if (largest_remade[item.remaker] == &item)
        for (const SequenceStep& step : remade.draft.sequence)
          if (step.recompute && step.op == item.remaker) times_.add(step.op, cost.back);
      cost.price += settings_.replay_price * (cost.back[share_compute] + cost.back[share_peer]);
      add(ActivationChoice::recompute, cost);
    }
    if (is_rebuilt(i)) {
      ShareCost cost;
      for (BucketId bucket : item.buckets) add_bucket(bucket, rebuilt, cost);
      if (largest_rebuilt[item.writer] == &item) {
        const ShareTimes times = times_.to_rebuild(item.writer);
        for (std::size_t lane = 0; lane < share_lanes; ++lane) cost.back.at(lane) += times.at(lane);
      }
      cost.price += settings_.replay_price * (cost.back[share_compute] + cost.back[share_peer]);
      add(ActivationChoice::recompute, cost);
    }
    for (const auto& [choice, draft] : stores) {
      if (choice == ActivationChoice::spill && (item.rebuildable || !settings_.spills)) continue;
      ShareCost cost;
      for (BucketId bucket : item.buckets) add_bucket(bucket, *draft, cost);
      add_sharing(item.writer, cost);
      add(choice, cost);
    }
    classes_.push_back(std::move(of));
  }
}

void DecisionClasses::merge() {
  std::map<std::vector<double>, std::size_t> kinds, known;
  std::vector<Class> merged;
  for (Class& of : classes_) {
    double most_host = 0;
    std::vector<double> key{of.members.front().is_activation ? 1.0 : 0.0};
    for (std::size_t o = 0; o < of.options.size(); ++o) {
      key.push_back(of.levels[o]);
      append(of.options[o].front, key);
      append(of.options[o].back, key);
      key.push_back(of.options[o].memory[base().size()]);
      most_host = std::max(most_host, of.options[o].memory[base().size()]);
    }
    most_host_ += static_cast<Bytes>(most_host);
    of.kind = kinds.emplace(key, kinds.size()).first->second;
    for (const ShareCost& option : of.options)
      key.insert(key.end(), option.memory.begin(),
                 option.memory.begin() + static_cast<std::ptrdiff_t>(base().size()));
    const auto [at, is_new] = known.emplace(std::move(key), merged.size());
    if (is_new)
      merged.push_back(std::move(of));
    else
      merged[at->second].members.push_back(of.members.front());
  }
  classes_ = std::move(merged);
}

std::uint8_t DecisionClasses::level_of(const Member& member, const Choices& choices) const {
  if (member.is_activation)
    return static_cast<std::uint8_t>(choice_of(problem_.items[member.index], choices));
  const auto load = static_cast<std::uint8_t>(choices.loads[member.index]);
  const bool is_early = !choices.speculated.empty() && choices.speculated[member.index] != 0;
  return is_early ? load | speculated : load;
}

void DecisionClasses::set(const Member& member, std::uint8_t level, Choices& choices) const {
  if (member.is_activation)
    choose(problem_.items[member.index], static_cast<ActivationChoice>(level), choices);
  else
    set_load(member.index, level, choices);
}

void DecisionClasses::set_load(BucketId bucket, std::uint8_t level, Choices& choices) const {
  choices.loads[bucket] = static_cast<LoadChoice>(level & ~speculated);
  if ((level & speculated) == 0) return;
  choices.speculated.resize(problem_.layout.buckets.size(), 0);
  choices.speculated[bucket] = 1;
}

}  // namespace stowage
