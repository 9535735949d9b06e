#include "tests/offload/oracle/game.h"

#include <algorithm>
#include <map>

#include "src/graph/cost.h"
#include "stowage/error.h"

namespace stowage::oracle {
namespace {

constexpr Bytes in_bucket_alignment = 64;

template <class Range, class Value>
bool has(const Range& range, const Value& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

int count_of(std::size_t size) { return static_cast<int>(size); }

}  // namespace

Bytes Step::most_live() const {
  std::vector<std::int64_t> change(compute.size() + 1, 0);
  for (const Stay& stay : stays) {
    if (stay.always) continue;
    const auto bytes = static_cast<std::int64_t>(align_up(stay.bytes, alignment));
    if (stay.wraps) change[0] += bytes;
    change[static_cast<std::size_t>(stay.first)] += bytes;
    change[static_cast<std::size_t>(stay.last) + 1] -= bytes;
  }
  Bytes always = live;
  for (const Stay& stay : stays)
    if (stay.wraps) always -= align_up(stay.bytes, alignment);
  std::int64_t sum = 0, most = 0;
  for (std::size_t i = 0; i < compute.size(); ++i) most = std::max(most, sum += change[i]);
  return always + static_cast<Bytes>(most);
}

// Fills a step's jobs in the order of the places.
class StepBuilder {
 public:
  StepBuilder(const Game& game, const Choice& choice, const Game::Sequence& sequence, bool detailed)
      : game_(game), choice_(choice), sequence_(sequence), machine_(game.machine_), detailed_(detailed) {}

  Step run() {
    add_updates();
    for (const Game::Place& place : sequence_.places) add_compute(place.op, place.replay);
    add_loaded();
    add_gradients();
    add_sums();
    for (TensorId id = 0; id < game_.graph_.tensors.size(); ++id) {
      const TensorKind kind = game_.graph_.tensor(id).kind;
      if (kind == TensorKind::workspace)
        for (const Game::Use& use : sequence_.uses[id]) stay(id, use.at, use.at);
      if (kind == TensorKind::activation && !has(game_.sums_, id)) add_activation(id);
    }
    finish();
    return std::move(step_);
  }

 private:
  std::uint32_t runs() const { return choice_.bucket_of.empty() ? 0 : choice_.bucket_of.back() + 1; }
  bool stays_resident(std::size_t parameter) const {
    return choice_.loads[choice_.bucket_of[parameter]] == resident;
  }
  void add_compute(OpId op, bool replay) {
    Compute job;
    job.op = op;
    job.replay = replay;
    job.seconds = op_seconds(game_.graph_.op(op), machine_);
    step_.compute.push_back(job);
  }
  void add_updates() {
    step_.gate_seconds = host_seconds(game_.graph_.op(game_.clip_op_), machine_);
    for (std::size_t p = 0; p < game_.parameters_.size(); ++p) {
      if (stays_resident(p))
        add_compute(game_.parameters_[p].update, false);
      else
        step_.host_seconds += host_seconds(game_.graph_.op(game_.parameters_[p].update), machine_);
    }
    updates_ = count_of(step_.compute.size());
    if (updates_ == 0) return;
    step_.has_clip = true;
    Stay& clip = add({list({game_.graph_.clip}), game_.bytes_of(game_.graph_.clip), 0, updates_ - 1});
    fetch(clip, {});
  }

  Stay& add(Stay stay) {
    step_.stays.push_back(std::move(stay));
    return step_.stays.back();
  }
  Stay& stay(TensorId id, int first, int last) {
    return add({list({id}), game_.bytes_of(id), first + updates_, last + updates_});
  }
  std::vector<TensorId> list(std::initializer_list<TensorId> ids) const {
    return detailed_ ? std::vector<TensorId>(ids) : std::vector<TensorId>();
  }
  // `id` joins the stay's bucket.
  void join(Stay& stay, TensorId id, Bytes at) {
    stay.bytes = align_up(stay.bytes, at) + game_.bytes_of(id);
    if (detailed_) stay.tensors.push_back(id);
  }
  void fetch(Stay& stay, Prefetch job) {
    job.bytes = align_up(stay.bytes, alignment);
    job.seconds = machine_.h2d.seconds(stay.bytes);
    job.use = stay.first;
    stay.prefetch = count_of(step_.prefetches.size());
    step_.prefetches.push_back(job);
  }
  void send(Stay& stay) {
    stay.offload = count_of(step_.offloads.size());
    step_.offloads.push_back({machine_.d2h.seconds(stay.bytes), align_up(stay.bytes, alignment), stay.last});
  }

  void add_loaded() {
    const auto buckets = game_.loaded_buckets(choice_);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      Stay whole;
      for (TensorId id : buckets[b]) join(whole, id, in_bucket_alignment);
      if (choice_.loads[b] == resident)
        add_resident(static_cast<std::uint32_t>(b), whole);
      else
        add_loads(b, whole);
    }
  }
  void add_resident(std::uint32_t run, Stay parameters) {
    parameters.always = true;
    add(parameters);
    Stay state;
    state.always = true;
    for (std::size_t p = 0; p < game_.parameters_.size(); ++p)
      if (choice_.bucket_of[p] == run)
        for (TensorId id : game_.parameters_[p].state) join(state, id, in_bucket_alignment);
    if (state.bytes > 0) add(state);
  }
  void add_loads(std::size_t bucket, const Stay& whole) {
    const std::vector<int>& places = sequence_.loaded[bucket];
    double host = 0;
    for (std::size_t p = 0; p < game_.parameters_.size(); ++p)
      if (bucket < runs() && choice_.bucket_of[p] == bucket)
        host += host_seconds(game_.graph_.op(game_.parameters_[p].update), machine_);
    int behind = -1;
    for (std::size_t i = 0; i < places.size();) {
      std::size_t end = i + 1;
      while (end < places.size() && (choice_.loads[bucket] >> (end - 1) & 1U) == 0) ++end;
      Stay& part = add(whole);
      part.first = places[i] + updates_;
      part.last = places[end - 1] + updates_;
      Prefetch job;
      job.behind = behind;
      job.first_load = i == 0 && bucket < runs();
      job.host_seconds = job.first_load ? host : 0;
      fetch(part, job);
      behind = part.last;
      i = end;
    }
  }

  // One bucket for a run's gradients, as for its parameters.
  void add_gradients() {
    for (std::uint32_t run = 0; run < runs(); ++run) {
      Stay gradient;
      gradient.first = gradient.last = -1;
      int update = -1, seen = 0;
      for (std::size_t p = 0; p < game_.parameters_.size(); ++p) {
        const TensorId id = game_.parameters_[p].gradient;
        if (stays_resident(p)) ++seen;
        if (choice_.bucket_of[p] != run) continue;
        join(gradient, id, in_bucket_alignment);
        const std::vector<Game::Use>& uses = sequence_.uses[id];
        if (gradient.first < 0 || uses.front().at + updates_ < gradient.first)
          gradient.first = uses.front().at + updates_;
        gradient.last = std::max(gradient.last, uses.back().at + updates_);
        update = seen - 1;
      }
      if (choice_.loads[run] == resident) {
        gradient.last = update;
        gradient.wraps = true;
        add(gradient);
      } else {
        send(add(gradient));
      }
    }
  }
  void add_sums() {
    Stay sums;
    sums.first = 1 << 30;
    for (TensorId id : game_.sums_) {
      join(sums, id, 8);
      sums.first = std::min(sums.first, sequence_.uses[id].front().at + updates_);
      sums.last = std::max(sums.last, sequence_.uses[id].back().at + updates_);
    }
    send(add(sums));
  }

  void add_activation(TensorId id) {
    std::vector<Game::Use> uses;
    int rebuilt = -1;
    for (const Game::Use& use : sequence_.uses[id]) {
      const bool replayed = use.writes && sequence_.places[static_cast<std::size_t>(use.at)].replay;
      if (replayed && !sequence_.rebuilt[id])
        stay(id, use.at, use.at);  // a copy that nobody reads
      else
        uses.push_back(use);
      if (replayed && sequence_.rebuilt[id]) rebuilt = use.at;
    }
    if (uses.empty()) return;
    auto late = uses.begin();
    while (late != uses.end() && late->at < (rebuilt < 0 ? sequence_.turn : rebuilt)) ++late;
    const bool offloaded = rebuilt < 0 && is_offloaded(id);
    if (late == uses.begin() || late == uses.end() || (rebuilt < 0 && !offloaded)) {
      Stay& whole = stay(id, uses.front().at, uses.back().at);
      if (id == game_.graph_.loss) send(whole);
      return;
    }
    const std::uint32_t away = offloaded ? choice_.away[value_of(id)] : 0;
    auto back = late;  // the first use behind the offload
    if ((away & kept_over_turn) != 0) back = end_of_stay(late, late, uses.end(), away);
    Stay& early = stay(id, uses.front().at, (back - 1)->at);
    if (offloaded) send(early);
    if (!offloaded) {
      stay(id, late->at, uses.back().at);
      return;
    }
    Prefetch job;
    job.offload = count_of(step_.offloads.size()) - 1;
    for (auto begin = back; begin != uses.end();) {
      const auto end = end_of_stay(begin, late, uses.end(), away);
      Stay& again = stay(id, begin->at, (end - 1)->at);
      fetch(again, job);
      job.behind = again.last;
      begin = end;
    }
  }
  // The first use behind a gap in which it is away.
  template <typename Iterator>
  static Iterator end_of_stay(Iterator begin, Iterator late, Iterator last, std::uint32_t away) {
    Iterator end = begin + 1;
    while (end != last && (away >> (end - late - 1) & 1U) == 0) ++end;
    return end;
  }
  std::size_t value_of(TensorId id) const {
    return static_cast<std::size_t>(std::find(game_.values_.begin(), game_.values_.end(), id) -
                                    game_.values_.begin());
  }
  bool is_offloaded(TensorId id) const {
    const std::size_t value = value_of(id);
    return value < game_.values_.size() && choice_.values[value] == Kept::offload;
  }

  void finish() {
    for (const Stay& stay : step_.stays) {
      const Bytes bytes = align_up(stay.bytes, alignment);
      if (stay.always || stay.wraps) step_.live += bytes;
      if (stay.always) continue;
      Compute& first = step_.compute[static_cast<std::size_t>(stay.first)];
      Compute& last = step_.compute[static_cast<std::size_t>(stay.last)];
      if (stay.prefetch < 0) {
        first.takes += bytes;
      } else {
        first.needs |= std::uint64_t{1} << stay.prefetch;
        first.prefetches.push_back(stay.prefetch);
      }
      if (stay.offload < 0)
        last.frees += bytes;
      else
        last.offloads.push_back(stay.offload);
    }
    if (step_.prefetches.size() > 64 || step_.offloads.size() > 64)
      throw InvalidInput("the oracle plays with at most 64 transfers each way; give it a smaller graph");
  }

  const Game& game_;
  const Choice& choice_;
  const Game::Sequence& sequence_;
  const Machine& machine_;
  bool detailed_;
  int updates_ = 0;
  Step step_;
};

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
      if (kind == TensorKind::parameter && !known) parameters_.push_back({id, no_id, {}, no_id});
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
  std::uint32_t turn = no_id;
  for (const Op& op : graph_.ops) {
    if (op.phase == Phase::forward) turn = op.unit;
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

Step Game::build(const Choice& choice, const Sequence& sequence, bool detailed) const {
  return StepBuilder(*this, choice, sequence, detailed).run();
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
