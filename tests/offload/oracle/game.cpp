#include "tests/offload/oracle/game.h"

#include <algorithm>

#include "stowage/error.h"

namespace stowage::oracle {
namespace {

template <class Range, class Value>
bool has(const Range& range, const Value& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

int count_of(std::size_t size) { return static_cast<int>(size); }

}  // namespace

Game::Game(const Graph& graph, const Machine& machine) : graph_(graph), machine_(machine) {
  for (const Op& op : graph.ops) {
    if (!op.may_alias.empty())
      throw InvalidInput("the oracle knows no aliases; op '" + op.name + "' has one");
    if (op.phase == Phase::update) continue;
    for (TensorId id : op.writes)
      if (has(op.reads, id))
        throw InvalidInput("the oracle knows no update in place; op '" + op.name + "' is one");
  }
  for (OpId op = 0; op < graph.ops.size(); ++op)
    if (has(graph.op(op).writes, graph.clip)) clip_op_ = op;
  if (clip_op_ == no_id) throw InvalidInput("the oracle needs a graph with an update phase");
  sums_ = graph.op(clip_op_).reads;
  find_parameters();
  find_values();
}

void Game::find_parameters() {
  for (const Op& op : graph_.ops)
    for (TensorId id : op.reads) {
      const TensorKind kind = graph_.tensor(id).kind;
      const bool known = std::any_of(parameters_.begin(), parameters_.end(),
                                     [&](const Parameter& p) { return p.tensor == id; });
      if (kind == TensorKind::parameter && !known) {
        // So no bucket is fetched for the first time when an update may be early.
        if (op.phase != Phase::forward)
          throw InvalidInput("the oracle wants forward to read each parameter first; op '" + op.name +
                             "' is not of forward");
        parameters_.push_back({id, no_id, {}, no_id});
      }
      if (kind == TensorKind::input && !has(inputs_, id)) inputs_.push_back(id);
    }
  for (OpId op = 0; op < graph_.ops.size(); ++op)
    for (Parameter& parameter : parameters_) {
      const Op& update = graph_.op(op);
      if (update.phase != Phase::update || !has(update.writes, parameter.tensor)) continue;
      parameter.update = op;
      for (TensorId id : update.reads) {
        if (graph_.tensor(id).kind == TensorKind::gradient) parameter.gradient = id;
        if (graph_.tensor(id).kind == TensorKind::optimizer_state) parameter.state.push_back(id);
      }
    }
}

void Game::find_values() {
  made_in_.assign(graph_.tensors.size(), no_id);
  boundary_.assign(graph_.tensors.size(), 0);
  std::vector<std::uint32_t> unit_of(graph_.tensors.size(), no_id);
  std::uint32_t turn = no_id;  // no_id: another unit's backward comes first
  for (std::size_t i = 0; i + 1 < graph_.ops.size(); ++i) {
    const Op &op = graph_.ops[i], &next = graph_.ops[i + 1];
    if (op.phase == Phase::forward && next.phase == Phase::backward && op.unit == next.unit) turn = op.unit;
  }
  for (const Op& op : graph_.ops) {
    if (op.phase == Phase::update) continue;
    auto touch = [&](TensorId id) {
      if (unit_of[id] == no_id) unit_of[id] = op.unit;
      if (unit_of[id] != op.unit) boundary_[id] = 1;
    };
    std::for_each(op.reads.begin(), op.reads.end(), touch);
    std::for_each(op.writes.begin(), op.writes.end(), touch);
    if (op.phase == Phase::forward)
      for (TensorId id : op.writes)
        if (graph_.tensor(id).kind == TensorKind::activation) made_in_[id] = op.unit;
  }
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    if (made_in_[id] == no_id || id == graph_.loss) continue;
    bool late = false, replayed = false;
    for (const Op& op : graph_.ops)
      if (has(op.reads, id))
        (op.phase == Phase::forward ? replayed : late) |= op.unit != turn || op.phase != Phase::forward;
    if (!late && !(boundary_[id] && replayed)) continue;
    values_.push_back(id);
    may_recompute_.push_back(!boundary_[id] && made_in_[id] != turn);
  }
}

std::vector<OpId> Game::replay_of(std::uint32_t unit, const Choice& choice,
                                  std::vector<std::uint8_t>& rebuilt) const {
  auto decided = [&](TensorId id) {
    for (std::size_t v = 0; v < values_.size(); ++v)
      if (values_[v] == id) return count_of(v);
    return -1;
  };
  auto is_there = [&](TensorId id) {
    const int v = decided(id);
    return boundary_[id] || (v >= 0 && choice.values[static_cast<std::size_t>(v)] != Kept::recompute);
  };
  std::vector<std::uint8_t> wanted(graph_.tensors.size(), 0);
  for (std::size_t v = 0; v < values_.size(); ++v)
    if (choice.values[v] == Kept::recompute && made_in_[values_[v]] == unit) wanted[values_[v]] = 1;
  std::vector<OpId> ops;
  for (OpId op = static_cast<OpId>(graph_.ops.size()); op-- > 0;) {
    const Op& maker = graph_.op(op);
    if (maker.phase != Phase::forward || maker.unit != unit) continue;
    if (std::none_of(maker.writes.begin(), maker.writes.end(), [&](TensorId id) { return wanted[id] != 0; }))
      continue;
    ops.insert(ops.begin(), op);
    for (TensorId id : maker.writes) rebuilt[id] = !is_there(id);
    for (TensorId id : maker.reads)
      if (made_in_[id] == unit && !is_there(id)) wanted[id] = 1;
  }
  return ops;
}

Game::Sequence Game::sequence_of(const Choice& choice) const {
  Sequence sequence;
  sequence.rebuilt.assign(graph_.tensors.size(), 0);
  sequence.uses.resize(graph_.tensors.size());
  std::vector<std::uint32_t> begun;
  for (OpId op = 0; op < graph_.ops.size(); ++op) {
    const Op& here = graph_.op(op);
    if (here.phase == Phase::update) break;
    if (here.phase == Phase::forward) sequence.turn = count_of(sequence.places.size()) + 1;
    if (here.phase == Phase::backward && !has(begun, here.unit)) {
      begun.push_back(here.unit);
      for (OpId again : replay_of(here.unit, choice, sequence.rebuilt))
        sequence.places.push_back({again, true});
    }
    sequence.places.push_back({op, false});
  }
  for (std::size_t at = 0; at < sequence.places.size(); ++at) {
    const Op& op = graph_.op(sequence.places[at].op);
    for (TensorId id : op.reads) sequence.uses[id].push_back({count_of(at), false});
    for (TensorId id : op.writes) sequence.uses[id].push_back({count_of(at), true});
  }
  for (const auto& bucket : loaded_buckets(choice)) {
    std::vector<int> places;
    for (TensorId id : bucket)
      for (const Use& use : sequence.uses[id]) places.push_back(use.at);
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    sequence.loaded.push_back(std::move(places));
  }
  return sequence;
}

std::vector<std::vector<TensorId>> Game::loaded_buckets(const Choice& choice) const {
  std::vector<std::vector<TensorId>> buckets;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (choice.bucket_of[p] == buckets.size()) buckets.emplace_back();
    buckets.back().push_back(parameters_[p].tensor);
  }
  for (TensorId id : inputs_) buckets.push_back({id});
  return buckets;
}

bool Game::may_offload(const Sequence& sequence, TensorId value) const {
  int early = -1, late = -1;
  for (const Use& use : sequence.uses[value]) {
    if (use.writes && sequence.places[static_cast<std::size_t>(use.at)].replay) continue;
    if (use.at < sequence.turn) early = use.at;
    if (use.at >= sequence.turn && late < 0) late = use.at;
  }
  return early >= 0 && late > early + 1;
}

// Gaps between late uses that are more than the step to the next op.
std::uint32_t Game::late_gaps(const Sequence& sequence, TensorId value) const {
  std::uint32_t may = 0;
  int gap = 0, last = -1;
  for (const Use& use : sequence.uses[value]) {
    if (use.at < sequence.turn || use.writes) continue;
    if (last >= 0 && use.at > last + 1) may |= 1U << gap;
    if (last >= 0) ++gap;
    last = use.at;
  }
  return may;
}

void Game::each_kept(Choice& choice, std::size_t value,
                     const std::function<void(Choice&, const Sequence&)>& visit) const {
  if (value == values_.size()) {
    visit(choice, sequence_of(choice));
    return;
  }
  choice.values[value] = Kept::keep;
  each_kept(choice, value + 1, visit);
  if (!may_recompute_[value]) return;
  choice.values[value] = Kept::recompute;
  each_kept(choice, value + 1, visit);
  choice.values[value] = Kept::keep;
}

void Game::each_offload(Choice& choice, const Sequence& sequence, std::size_t value,
                        const std::function<void(Choice&)>& visit) const {
  if (value == values_.size()) {
    each_load(choice, sequence, 0, visit);
    return;
  }
  each_offload(choice, sequence, value + 1, visit);
  if (choice.values[value] != Kept::keep) return;
  choice.values[value] = Kept::offload;
  const std::uint32_t may = late_gaps(sequence, values_[value]);
  const bool over_turn = may_offload(sequence, values_[value]);
  for (std::uint32_t mask = may;; mask = (mask - 1) & may) {
    choice.away[value] = mask;
    if (over_turn) each_offload(choice, sequence, value + 1, visit);
    if (mask == 0) break;
    choice.away[value] |= kept_over_turn;
    each_offload(choice, sequence, value + 1, visit);
  }
  choice.values[value] = Kept::keep;
}

void Game::each_load(Choice& choice, const Sequence& sequence, std::size_t bucket,
                     const std::function<void(Choice&)>& visit) const {
  if (bucket == sequence.loaded.size()) {
    visit(choice);
    return;
  }
  const std::vector<int>& places = sequence.loaded[bucket];
  std::uint32_t may = 0;  // gaps that are more than the step to the next op
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i] > places[i - 1] + 1) may |= 1U << (i - 1);
  for (std::uint32_t mask = may;; mask = (mask - 1) & may) {
    choice.loads[bucket] = mask;
    each_load(choice, sequence, bucket + 1, visit);
    if (mask == 0) break;
  }
  if (bucket >= sequence.loaded.size() - inputs_.size()) return;
  choice.loads[bucket] = resident;
  each_load(choice, sequence, bucket + 1, visit);
}

void Game::each_choice(const std::function<void(Choice&, const Sequence&)>& visit) const {
  const std::size_t joints = parameters_.empty() ? 0 : parameters_.size() - 1;
  for (std::uint32_t cuts = 0; cuts < 1U << joints; ++cuts) {  // bit: the neighbours share a bucket
    bool mixed = false;                                        // what is trained and what is not
    for (std::size_t p = 1; p < parameters_.size(); ++p)
      mixed |= (cuts >> (p - 1) & 1U) != 0 && is_trained(p) != is_trained(p - 1);
    if (mixed) continue;
    Choice choice;
    choice.bucket_of.assign(parameters_.size(), 0);
    for (std::size_t p = 1; p < parameters_.size(); ++p)
      choice.bucket_of[p] = choice.bucket_of[p - 1] + (cuts >> (p - 1) & 1U ? 0 : 1);
    choice.values.assign(values_.size(), Kept::keep);
    choice.away.assign(values_.size(), 0);
    choice.loads.assign((parameters_.empty() ? 0 : choice.bucket_of.back() + 1) + inputs_.size(), 0);
    each_kept(choice, 0, [&](Choice& kept, const Sequence& sequence) {
      each_offload(kept, sequence, 0, [&](Choice& full) { visit(full, sequence); });
    });
  }
}

void Game::each(Bytes most_live, const std::function<void(const Choice&, Step&&)>& visit) const {
  each_choice([&](Choice& choice, const Sequence& sequence) {
    Step built = build(choice, sequence, false);
    if (built.most_live() <= most_live) visit(choice, std::move(built));
  });
}

Step Game::step(const Choice& choice) const { return build(choice, sequence_of(choice), true); }

double Game::size() const {
  double count = 0;
  each_choice([&](Choice&, const Sequence&) { ++count; });
  return count;
}

Choice Game::choice_of(const Plan& plan) const {
  std::vector<BucketId> bucket_of(graph_.tensors.size(), no_id);
  for (BucketId b = 0; b < plan.buckets.size(); ++b)
    for (const BucketTensor& member : plan.buckets[b].tensors) bucket_of[member.tensor] = b;
  Choice choice;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const bool joins = p > 0 && bucket_of[parameters_[p].tensor] == bucket_of[parameters_[p - 1].tensor];
    choice.bucket_of.push_back(p == 0 ? 0 : choice.bucket_of.back() + (joins ? 0 : 1));
  }
  std::vector<std::uint8_t> fetched(plan.buckets.size(), 0), loaded(plan.lifetimes.size(), 0);
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::prefetch) {
      loaded[instruction.lifetime] = 1;
      fetched[plan.lifetimes[instruction.lifetime].bucket] = 1;
    }
  auto gaps_between = [&](BucketId id) {
    std::uint32_t gaps = 0;
    LifetimeId last = no_id;
    int gap = -1;
    for (const Instruction& instruction : plan.instructions)
      for (LifetimeId use : instruction.uses) {
        if (plan.lifetimes[use].bucket != id || !loaded[use]) continue;
        if (gap >= 0 && use != last) gaps |= 1U << gap;
        ++gap;
        last = use;
      }
    return gaps;
  };
  for (TensorId id : values_) {
    const bool again = plan.buckets[bucket_of[id]].residency == Residency::recomputed;
    choice.values.push_back(fetched[bucket_of[id]] ? Kept::offload : again ? Kept::recompute : Kept::keep);
    choice.away.push_back(gaps_between(bucket_of[id]));
  }
  for (const auto& bucket : loaded_buckets(choice)) {
    const BucketId id = bucket_of[bucket.front()];
    choice.loads.push_back(plan.buckets[id].residency == Residency::resident ? resident : gaps_between(id));
  }
  const std::vector<InstructionId> early = speculations(plan, graph_.ops.size());
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    if (is_trained(p) && early[parameters_[p].update] != no_id) choice.early |= UpdateMask{1} << p;
  return choice;
}

std::string Game::describe(const Choice& choice) const {
  std::string text;
  const auto buckets = loaded_buckets(choice);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (TensorId id : buckets[b]) text += graph_.tensor(id).name + "+";
    text.back() = ' ';
    text += choice.loads[b] == resident ? "resident"
            : choice.loads[b] == 0      ? "held"
                                        : "streamed:" + std::to_string(choice.loads[b]);
    text += ", ";
  }
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    if ((choice.early >> p & 1U) != 0) text += graph_.tensor(parameters_[p].tensor).name + " early, ";
  const char* names[] = {"keep", "offload", "recompute"};
  for (std::size_t v = 0; v < values_.size(); ++v) {
    text += graph_.tensor(values_[v]).name + " " + names[static_cast<std::size_t>(choice.values[v])];
    const std::uint32_t away = choice.away[v];
    if (away != 0) text += ":" + std::to_string(away & ~kept_over_turn);
    if ((away & kept_over_turn) != 0) text += " late";
    text += ", ";
  }
  return text.substr(0, text.size() - 2);
}

}  // namespace stowage::oracle
