#include "offload/plan/lane_totals.h"

#include <algorithm>
#include <cmath>

#include "offload/plan/residency.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

double together(double a, double b, double c, double d) {
  const double largest = std::max({a, b, c, d});
  if (largest <= 0) return 0;
  double sum = 0;
  for (double part : {a, b, c, d}) sum += std::pow(part / largest, 8);
  return largest * std::pow(sum, 1.0 / 8);
}
double together(const PhaseTotals& totals) {
  return together(totals.compute, totals.h2d, totals.d2h, totals.host);
}

}  // namespace

PhaseTotals& PhaseTotals::operator+=(const PhaseTotals& other) {
  compute += other.compute;
  h2d += other.h2d;
  d2h += other.d2h;
  host += other.host;
  return *this;
}

LaneTotals& LaneTotals::operator+=(const LaneTotals& other) {
  front += other.front;
  back += other.back;
  update += other.update;
  return *this;
}

double LaneTotals::seconds() const { return together(front) + together(back) + update; }

LaneModel::LaneModel(const Problem& problem) : problem_(problem) {
  const Graph& graph = *problem.graph;
  const std::size_t buckets = problem.layout.buckets.size();
  host_update_.assign(buckets, 0);
  update_.assign(buckets, 0);
  gradient_of_.assign(buckets, no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    const Op& description = graph.op(op);
    if (description.phase != Phase::update) {
      (in_front({op, false}) ? fixed_.front : fixed_.back).compute += seconds_of(op);
      continue;
    }
    for (TensorId id : description.writes) {
      if (graph.tensor(id).kind != TensorKind::parameter) continue;
      host_update_[problem.layout.bucket_of[id]] += host_seconds(description, *problem.machine);
      update_[problem.layout.bucket_of[id]] += seconds_of(op);
    }
  }
  for (BucketId id = 0; id < buckets; ++id)
    if (problem.layout.roles[id] == BucketRole::gradient && problem.layout.parameters_of[id] != no_id)
      gradient_of_[problem.layout.parameters_of[id]] = id;
  items_of_.resize(problem.analysis.units.size());
  for (std::size_t i = 0; i < problem.items.size(); ++i) items_of_[problem.items[i].unit].push_back(i);
  count_loads();
}

// Counted where everything is replayed: the most that the choice can make necessary.
void LaneModel::count_loads() {
  const Graph& graph = *problem_.graph;
  Choices choices = lowest_choices(problem_);
  for (LoadChoice choice : {LoadChoice::each_op, LoadChoice::each_unit, LoadChoice::held}) {
    std::fill(choices.loads.begin(), choices.loads.end(), choice);
    const Draft draft = make_lifetimes(graph, problem_.analysis, problem_.layout, choices);
    std::vector<Loads> loads(problem_.layout.buckets.size());
    for (const DraftLifetime& lifetime : draft.lifetimes) {
      if (!lifetime.prefetched) continue;
      const SequenceStep& step = draft.sequence[static_cast<std::size_t>(lifetime.first_use)];
      (in_front(step) ? loads[lifetime.bucket].front : loads[lifetime.bucket].back) += 1;
    }
    loads_.push_back(std::move(loads));
  }
  loads_.emplace_back(problem_.layout.buckets.size());  // resident
}

bool LaneModel::is_front(std::uint32_t unit) const {
  return problem_.analysis.order == MicroBatchOrder::layer_major || problem_.graph->micro_batch_of(unit) == 0;
}
bool LaneModel::in_front(const SequenceStep& step) const {
  const Op& op = problem_.graph->op(step.op);
  return !step.recompute && op.phase == Phase::forward && is_front(op.unit);
}

double LaneModel::seconds_of(OpId op) const { return op_seconds(problem_.graph->op(op), *problem_.machine); }

LaneTotals LaneModel::of_unit(std::uint32_t unit, const Choices& choices) const {
  LaneTotals totals;
  const Machine& machine = *problem_.machine;
  if (!problem_.analysis.units[unit].ops.empty()) {
    const PartialReplay replay = replay_of(*problem_.graph, problem_.analysis, unit, [&](TensorId group) {
      return choices.activations[problem_.layout.bucket_of[group]] != ActivationChoice::recompute;
    });
    for (OpId op : replay.ops) totals.back.compute += seconds_of(op);
  }
  for (std::size_t i : items_of_[unit]) {
    const ActivationChoice choice = choice_of(problem_.items[i], choices);
    if (choice != ActivationChoice::offload && choice != ActivationChoice::reload) continue;
    for (BucketId id : problem_.items[i].buckets) {
      (is_front(unit) ? totals.front : totals.back).d2h +=
          machine.d2h.seconds(problem_.layout.buckets[id].bytes);
      totals.back.h2d += machine.h2d.seconds(problem_.layout.buckets[id].bytes);
    }
  }
  return totals;
}

LaneTotals LaneModel::of_loads(BucketId bucket, LoadChoice choice) const {
  const Machine& machine = *problem_.machine;
  const Loads& loads = loads_[static_cast<std::size_t>(choice)][bucket];
  const double seconds = machine.h2d.seconds(problem_.layout.buckets[bucket].bytes);
  LaneTotals totals;
  totals.front.h2d = loads.front * seconds;
  totals.back.h2d = loads.back * seconds;
  if (choice == LoadChoice::resident) {
    totals.update = update_[bucket];
  } else {
    totals.front.host = host_update_[bucket];
    add_gradient(bucket, choice, totals.back);
  }
  return totals;
}

void LaneModel::add_gradient(BucketId bucket, LoadChoice choice, PhaseTotals& totals) const {
  const BucketId gradient = gradient_of_[bucket];
  if (gradient == no_id) return;
  const Bytes bytes = problem_.layout.buckets[gradient].bytes;
  const Loads& loads = loads_[static_cast<std::size_t>(choice)][gradient];
  const double again = loads.front + loads.back;  // the sum so far comes in again, then goes out again
  totals.d2h += (1 + again) * problem_.machine->d2h.seconds(bytes);
  totals.h2d += again * problem_.machine->h2d.seconds(bytes);
}

LaneTotals LaneModel::totals(const Choices& choices) const {
  LaneTotals totals = fixed_;
  for (std::uint32_t unit = 0; unit < items_of_.size(); ++unit) totals += of_unit(unit, choices);
  for (BucketId id = 0; id < choices.loads.size(); ++id) {
    const BucketRole role = problem_.layout.roles[id];
    if (role == BucketRole::parameter || role == BucketRole::input) totals += of_loads(id, choices.loads[id]);
  }
  return totals;
}

}  // namespace stowage
