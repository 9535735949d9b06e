#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "offload/plan/bound/decisions.h"

namespace stowage {
namespace {

struct Use {
  OpId op = no_id;
  bool writes = false;
};

// Between two uses of a group's bytes; or the same gap of several groups that one op makes.
struct Gap {
  std::vector<TensorId> groups;
  OpId after = no_id, before = no_id;  // the uses
  OpId writer = no_id;                 // of the bytes as they are in the gap
  Bytes bytes = 0;
};

class ActivationDecisions {
 public:
  explicit ActivationDecisions(const BoundCosts& costs)
      : costs_(costs), moments_(costs.moments()), problem_(costs.problem()), graph_(costs.graph()) {
    find_readers();
  }

  std::vector<ShareDecision> make() {
    if (moments_.ordered())
      add_gaps();
    else
      add_items();
    return std::move(decisions_);
  }

 private:
  // Of several micro-batches. An op that makes several items runs once more for all of them: its time counts
  // for the largest.
  void add_items() {
    const std::map<OpId, const ActivationItem*> largest = largest_items();
    for (const ActivationItem& item : problem_.items) {
      if (!crosses_turn(item)) continue;
      ShareCost kept, offloaded, rebuilt;
      // Of micro-batches one after another only those of one are there at its turn: on average so many.
      for (BucketId bucket : item.buckets)
        moments_.stay(problem_.layout.buckets[bucket].tensors.front().tensor,
                      problem_.layout.buckets[bucket].bytes, kept,
                      [&](OpId op) { return op == moments_.turn(); });
      for (double& memory : kept.memory) memory /= static_cast<double>(graph_.micro_batches);
      costs_.add_out(item.bytes, offloaded.front);
      costs_.add_in(item.bytes, offloaded.back);
      costs_.add_host(item.bytes, offloaded);
      if (largest.at(item.writer) == &item) add_rebuilding(item.writer, item.bytes, rebuilt.back);
      decisions_.push_back({{kept, offloaded, rebuilt}, 1});
    }
  }
  // By writer, of those that may be rebuilt.
  std::map<OpId, const ActivationItem*> largest_items() const {
    std::map<OpId, const ActivationItem*> largest;
    for (const ActivationItem& item : problem_.items) {
      if (!crosses_turn(item)) continue;
      const ActivationItem*& most = largest[item.writer];
      if (most == nullptr || most->bytes < item.bytes) most = &item;
    }
    return largest;
  }

  // Made before the turn, read behind it.
  bool crosses_turn(const ActivationItem& item) const {
    return moments_.in_front(item.writer) &&
           std::any_of(item.buckets.begin(), item.buckets.end(), [&](BucketId id) {
             return read_in_back_[moments_.group_of(problem_.layout.buckets[id].tensors.front().tensor)];
           });
  }

  // Of one micro-batch: between two uses of a group's bytes with a moment between them they stay, come in
  // once more, or are made once more, in the phase in which they are away for the last time. They are away
  // before the turn, behind it, or at it.
  void add_gaps() {
    std::map<TensorId, std::vector<Use>> uses;
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) break;
      for (TensorId id : moments_.groups(graph_.op(op).reads)) add_use(id, {op, false}, uses);
      for (TensorId id : moments_.groups(graph_.op(op).writes)) add_use(id, {op, true}, uses);
    }
    // By writer, sides of the turn, and moments within: one decision, of which any mixture keeps to the
    // costs.
    std::map<std::tuple<OpId, bool, bool, std::size_t, std::size_t>, Gap> gaps;
    for (const auto& [id, of] : uses) {
      OpId writer = no_id;
      for (std::size_t i = 0; i + 1 < of.size(); ++i) {
        if (of[i].writes) writer = of[i].op;
        const auto [first, last] = moments_between(of[i].op, of[i + 1].op);
        // When the peer lane comes to an op is not known.
        if (first == last || moments_.is_peer(of[i].op) || moments_.is_peer(of[i + 1].op)) continue;
        Gap& gap = gaps[{writer, moments_.in_front(of[i].op), moments_.in_front(of[i + 1].op), first, last}];
        gap.groups.push_back(id);
        gap.after = of[i].op;
        gap.before = of[i + 1].op;
        gap.writer = writer;
        gap.bytes += group_bytes(id);
      }
    }
    // An op that makes several groups runs once more for all of them: its time counts for the largest. Each
    // gap of one group needs a run of its own.
    std::map<OpId, TensorId> largest;
    for (const auto& [key, gap] : gaps)
      for (TensorId id : gap.groups) {
        TensorId& most = largest.try_emplace(gap.writer, id).first->second;
        if (group_bytes(id) > group_bytes(most)) most = id;
      }
    for (const auto& [key, gap] : gaps) {
      const auto& of = gap.groups;
      add_gap(gap, gap.writer != no_id && std::find(of.begin(), of.end(), largest[gap.writer]) != of.end());
    }
  }
  void add_use(TensorId id, const Use& use, std::map<TensorId, std::vector<Use>>& uses) const {
    if (problem_.layout.roles[problem_.layout.bucket_of[id]] != BucketRole::activation) return;
    std::vector<Use>& of = uses[id];
    if (!of.empty() && of.back().op == use.op)
      of.back().writes |= use.writes;
    else
      of.push_back(use);
  }
  // Indices of the moments strictly between two ops.
  std::pair<std::size_t, std::size_t> moments_between(OpId after, OpId before) const {
    std::size_t first = 0;
    while (first < moments_.gate() && moments_.all()[first].op <= after) ++first;
    std::size_t last = first;
    while (last < moments_.gate() && moments_.all()[last].op < before) ++last;
    return {first, last};
  }
  // `counts`: whether the writer's time is counted here.
  void add_gap(const Gap& gap, bool counts) {
    const auto in_gap = [&](OpId op) { return gap.after < op && op < gap.before; };
    ShareDecision decision;
    const auto option = [&](auto&& there) -> ShareCost& {
      ShareCost& cost = decision.options.emplace_back();
      for (TensorId id : gap.groups)
        moments_.stay(id, group_bytes(id), cost, [&](OpId op) { return in_gap(op) && there(op); });
      return cost;
    };
    const auto rebuild = [&](ShareTimes& lanes) {
      if (counts) add_rebuilding(gap.writer, gap.bytes, lanes);
    };
    const auto nowhere = [](OpId) { return false; };
    const auto across = [&](auto&& there) -> ShareCost& {
      ShareCost& cost = option(there);
      costs_.add_host(gap.bytes, cost);
      return cost;
    };
    option([](OpId) { return true; });
    if (moments_.in_front(gap.after) == moments_.in_front(gap.before)) {
      // Of several gaps one copy on the host may serve all: its way out counts for none of them.
      for (const bool again : {false, true}) {
        ShareCost& cost = option(nowhere);
        auto& lanes = moments_.in_front(gap.before) ? cost.front : cost.back;
        if (!again) costs_.add_in(gap.bytes, lanes);
        if (again && counts) costs_.add_op(gap.writer, lanes);
      }
    } else {
      const auto until_turn = [&](OpId op) { return moments_.in_front(op) || op == moments_.turn(); };
      const auto from_turn = [&](OpId op) { return !moments_.in_front(op) || op == moments_.turn(); };
      ShareCost& at_turn = across(nowhere);
      costs_.add_out(gap.bytes, at_turn.front);
      costs_.add_in(gap.bytes, at_turn.back);
      rebuild(option(nowhere).back);
      ShareCost& before = across(from_turn);
      costs_.add_out(gap.bytes, before.front);
      costs_.add_in(gap.bytes, before.front);
      if (ShareCost& cost = option(from_turn); counts) costs_.add_op(gap.writer, cost.front);
      ShareCost& behind = across(until_turn);  // its copy may have left before
      costs_.add_out(gap.bytes, behind.front);
      costs_.add_in(gap.bytes, behind.back);
      ShareCost& all_behind = across(until_turn);
      costs_.add_out(gap.bytes, all_behind.back);
      costs_.add_in(gap.bytes, all_behind.back);
      rebuild(option(until_turn).back);
    }
    decisions_.push_back(std::move(decision));
  }
  Bytes group_bytes(TensorId id) const {
    return problem_.layout.buckets[problem_.layout.bucket_of[id]].bytes;
  }

  void find_readers() {
    producer_.assign(graph_.tensors.size(), no_id);
    readers_.assign(graph_.tensors.size(), 0);
    in_item_.assign(graph_.tensors.size(), 0);
    makes_item_.assign(graph_.ops.size(), 0);
    read_in_back_.assign(graph_.tensors.size(), 0);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (!moments_.in_front(op))
        for (TensorId id : graph_.op(op).reads) read_in_back_[moments_.group_of(id)] = 1;
      if (graph_.op(op).phase != Phase::forward) continue;
      for (TensorId id : graph_.op(op).reads) ++readers_[id];
      for (TensorId id : graph_.op(op).writes) producer_[id] = op;
    }
    for (const ActivationItem& item : problem_.items) {
      makes_item_[item.writer] = 1;
      for (BucketId bucket : item.buckets)
        in_item_[moments_.group_of(problem_.layout.buckets[bucket].tensors.front().tensor)] = 1;
    }
  }
  // Of the op, and of what it alone reads and backward does not: to keep or offload that instead of the
  // `bytes` that the op makes from it would save nothing, unless it is smaller.
  void add_rebuilding(OpId op, Bytes bytes, ShareTimes& lanes) const {
    costs_.add_op(op, lanes);
    for (TensorId id : graph_.op(op).reads) {
      const OpId producer = producer_[id];
      if (producer == no_id || readers_[id] > 1 || makes_item_[producer]) continue;
      const bool overwritten =
          std::any_of(graph_.op(op).writes.begin(), graph_.op(op).writes.end(),
                      [&](TensorId written) { return moments_.group_of(written) == moments_.group_of(id); });
      if (overwritten || (!in_item_[moments_.group_of(id)] && graph_.tensor(id).bytes() >= bytes))
        add_rebuilding(producer, bytes, lanes);
    }
  }

  const BoundCosts& costs_;
  const BoundMoments& moments_;
  const Problem& problem_;
  const Graph& graph_;
  std::vector<ShareDecision> decisions_;
  std::vector<OpId> producer_;              // by tensor: the forward op that makes it
  std::vector<int> readers_;                // by tensor: forward ops
  std::vector<std::uint8_t> in_item_;       // by group
  std::vector<std::uint8_t> read_in_back_;  // by group: behind the turn
  std::vector<std::uint8_t> makes_item_;    // by op
};

}  // namespace

std::vector<ShareDecision> activation_decisions(const BoundCosts& costs) {
  return ActivationDecisions(costs).make();
}

}  // namespace stowage
