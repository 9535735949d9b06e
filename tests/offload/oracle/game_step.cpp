// From a choice to the jobs of its step.
#include <algorithm>

#include "src/graph/cost.h"
#include "stowage/error.h"
#include "tests/offload/oracle/game.h"

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

Bytes Step::host_bytes(UpdateMask early) const {
  Bytes sum = host;
  for (std::size_t p = 0; p < updates.size(); ++p)
    if ((early >> p & 1U) != 0) sum += updates[p].undo_bytes;
  return sum;
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
    step_.host += game_.bytes_of(game_.graph_.clip) + game_.bytes_of(game_.graph_.loss);
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
    step_.updates.resize(game_.parameters_.size());
    for (std::size_t p = 0; p < game_.parameters_.size(); ++p) {
      if (!game_.is_trained(p)) continue;
      if (stays_resident(p))
        add_compute(game_.parameters_[p].update, false);
      else
        add_host_update(p);
    }
    updates_ = count_of(step_.compute.size());
    if (updates_ == 0) return;
    step_.has_clip = true;
    Stay& clip = add({list({game_.graph_.clip}), game_.bytes_of(game_.graph_.clip), 0, updates_ - 1});
    fetch(clip, {});
  }

  void add_host_update(std::size_t parameter) {
    const Op& op = game_.graph_.op(game_.parameters_[parameter].update);
    Update& update = step_.updates[parameter];
    update.op = game_.parameters_[parameter].update;
    update.late_seconds = host_seconds(op, machine_);
    update.early_seconds = undoable_seconds(game_.graph_, op, machine_);
    update.undo_bytes = undo_bytes(game_.graph_, op);
    if (update.undo_bytes > 0) step_.undoable |= UpdateMask{1} << parameter;
  }
  UpdateMask updates_of(std::size_t bucket) const {
    UpdateMask updates = 0;
    for (std::size_t p = 0; bucket < runs() && p < game_.parameters_.size(); ++p)
      if (choice_.bucket_of[p] == bucket && game_.is_trained(p)) updates |= UpdateMask{1} << p;
    return updates;
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
      if (choice_.loads[b] != resident) step_.host += whole.bytes;
      if (choice_.loads[b] == resident)
        add_resident(static_cast<std::uint32_t>(b), whole);
      else
        add_loads(b, whole);
    }
  }
  void add_resident(std::uint32_t run, Stay parameters) {
    parameters.always = true;
    add(parameters);
    Stay state = state_of(run);
    state.always = true;
    if (state.bytes > 0) add(state);
  }
  Stay state_of(std::uint32_t run) {
    Stay state;
    for (std::size_t p = 0; p < game_.parameters_.size(); ++p)
      if (choice_.bucket_of[p] == run)
        for (TensorId id : game_.parameters_[p].state) join(state, id, in_bucket_alignment);
    return state;
  }
  void add_loads(std::size_t bucket, const Stay& whole) {
    const std::vector<int>& places = sequence_.loaded[bucket];
    int behind = -1;
    for (std::size_t i = 0; i < places.size();) {
      std::size_t end = i + 1;
      while (end < places.size() && (choice_.loads[bucket] >> (end - 1) & 1U) == 0) ++end;
      Stay& part = add(whole);
      part.first = places[i] + updates_;
      part.last = places[end - 1] + updates_;
      Prefetch job;
      job.behind = behind;
      job.updates = i == 0 ? updates_of(bucket) : 0;
      fetch(part, job);
      behind = part.last;
      i = end;
    }
    for_each(updates_of(bucket),
             [&](Update& update) { update.prefetch = count_of(step_.prefetches.size()) - 1; });
  }

  // One bucket for a run's gradients, as for its parameters.
  void add_gradients() {
    for (std::uint32_t run = 0; run < runs(); ++run) {
      Stay gradient;
      gradient.first = gradient.last = -1;
      int update = -1, seen = 0;
      for (std::size_t p = 0; p < game_.parameters_.size(); ++p) {
        const TensorId id = game_.parameters_[p].gradient;
        if (!game_.is_trained(p)) continue;
        if (stays_resident(p)) ++seen;
        if (choice_.bucket_of[p] != run) continue;
        join(gradient, id, in_bucket_alignment);
        const std::vector<Game::Use>& uses = sequence_.uses[id];
        if (gradient.first < 0 || uses.front().at + updates_ < gradient.first)
          gradient.first = uses.front().at + updates_;
        gradient.last = std::max(gradient.last, uses.back().at + updates_);
        update = seen - 1;
      }
      if (gradient.first < 0) continue;  // of what is not trained
      if (choice_.loads[run] == resident) {
        gradient.last = update;
        gradient.wraps = true;
        add(gradient);
      } else {
        step_.host += gradient.bytes + state_of(run).bytes;
        send(add(gradient));
        for_each(updates_of(run),
                 [&](Update& update) { update.offload = count_of(step_.offloads.size()) - 1; });
      }
    }
  }
  template <class Visit>
  void for_each(UpdateMask updates, Visit&& visit) {
    for (std::size_t p = 0; p < step_.updates.size(); ++p)
      if ((updates >> p & 1U) != 0) visit(step_.updates[p]);
  }
  void add_sums() {
    Stay sums;
    sums.first = 1 << 30;
    for (TensorId id : game_.sums_) {
      join(sums, id, 8);
      sums.first = std::min(sums.first, sequence_.uses[id].front().at + updates_);
      sums.last = std::max(sums.last, sequence_.uses[id].back().at + updates_);
    }
    step_.host += sums.bytes;
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
    if (offloaded) {
      step_.host += game_.bytes_of(id);
      send(early);
    }
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

Step Game::build(const Choice& choice, const Sequence& sequence, bool detailed) const {
  return StepBuilder(*this, choice, sequence, detailed).run();
}

}  // namespace stowage::oracle
