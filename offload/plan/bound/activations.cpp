#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "offload/plan/bound/program.h"

namespace stowage {
namespace {

struct Use {
  OpId op = no_id;
  bool writes = false;
};

// A pause between two uses of an alias group, or the same pause of several groups that one op makes.
struct Pause {
  std::vector<TensorId> groups;
  OpId after = no_id, before = no_id;  // the ops of the two uses
  OpId writer = no_id;                 // the op that wrote the bytes as they are in the pause
  Bytes bytes = 0;
};

class ActivationDecisions {
 public:
  explicit ActivationDecisions(const BoundCosts& costs)
      : costs_(costs), rows_(costs.rows()), problem_(costs.problem()), graph_(costs.graph()) {
    find_readers();
  }

  std::vector<ShareDecision> make() {
    if (rows_.ordered())
      add_pauses();
    else
      add_items();
    return std::move(decisions_);
  }

 private:
  // Adds the decisions of a step of several micro-batches. An op that makes several items rebuilds all of
  // them in one run, so its time counts for the largest item only.
  void add_items() {
    const std::map<OpId, const ActivationItem*> largest = largest_items();
    for (const ActivationItem& item : problem_.items) {
      if (!crosses_turn(item)) continue;
      const bool everywhere = rows_.is_at_every_turn(item.unit);
      ShareCost kept = at_turn(item, everywhere ? 1 : rows_.turns()), offloaded, rebuilt;
      costs_.add_out(item.bytes, rows_.in_front(item.writer) ? offloaded.front : offloaded.back);
      costs_.add_in(item.bytes, offloaded.back);
      costs_.add_host(item.bytes, offloaded);
      if (largest.at(item.writer) == &item) add_rebuilding(item.writer, item.bytes, rebuilt.back);
      decisions_.push_back({{kept, offloaded, rebuilt}, 1});
      if (!everywhere || rows_.turns() == 1) continue;
      // It may also leave behind the first turn.
      ShareCost later = at_turn(item, rows_.turns());
      costs_.add_out(item.bytes, later.back);
      costs_.add_in(item.bytes, later.back);
      costs_.add_host(item.bytes, later);
      decisions_.back().options.push_back(later);
    }
  }
  // Returns the cost of an item that is there at one of so many turns. If micro-batches run one after
  // another, only the items of one of them are there at its turn; with ahead(w), those of w, and those of all
  // in the ranges before the last. So an item counts with this part of its bytes, on average over the turns.
  ShareCost at_turn(const ActivationItem& item, std::uint32_t turns) const {
    ShareCost cost;
    for (BucketId bucket : item.buckets)
      rows_.stay(problem_.layout.buckets[bucket].tensors.front().tensor,
                 problem_.layout.buckets[bucket].bytes, cost,
                 [&](OpId op) { return op == rows_.turn() && !may_be_operand(item); });
    for (double& memory : cost.memory) memory /= static_cast<double>(turns);
    return cost;
  }
  // Returns, by writer, the largest item that it makes and that crosses the turn.
  std::map<OpId, const ActivationItem*> largest_items() const {
    std::map<OpId, const ActivationItem*> largest;
    for (const ActivationItem& item : problem_.items) {
      if (!crosses_turn(item)) continue;
      const ActivationItem*& most = largest[item.writer];
      if (most == nullptr || most->bytes < item.bytes) most = &item;
    }
    return largest;
  }

  // Returns whether a backward op of the turn's half-block may read the item. What an op reads counts in the
  // room beside it.
  bool may_be_operand(const ActivationItem& item) const {
    return rows_.is_far() &&
           graph_.half_block_of(item.unit) == graph_.half_block_of(graph_.op(rows_.turn()).unit);
  }
  // Returns whether the item is made before its micro-batch's turn and read behind it.
  bool crosses_turn(const ActivationItem& item) const {
    const bool behind_front = rows_.is_far() && graph_.op(item.writer).phase == Phase::forward;
    return (behind_front || rows_.in_front(item.writer)) &&
           std::any_of(item.buckets.begin(), item.buckets.end(), [&](BucketId id) {
             return read_in_back_[rows_.group_of(problem_.layout.buckets[id].tensors.front().tensor)];
           });
  }

  // Adds the decisions of a step of one micro-batch. In a pause with a row within it a group stays, comes in
  // once more, or is made once more; the cost counts in the phase in which the group is away for the last
  // time. A group is away before the turn, behind it, or at it.
  void add_pauses() {
    std::map<TensorId, std::vector<Use>> uses;
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) break;
      for (TensorId id : rows_.groups(graph_.op(op).reads)) add_use(id, {op, false}, uses);
      for (TensorId id : rows_.groups(graph_.op(op).writes)) add_use(id, {op, true}, uses);
    }
    // Pauses with the same writer, sides of the turn and rows within them are one decision. Any mixture of
    // its options keeps to the costs.
    std::map<std::tuple<OpId, bool, bool, std::size_t, std::size_t>, Pause> pauses;
    for (const auto& [id, of] : uses) {
      OpId writer = no_id;
      for (std::size_t i = 0; i + 1 < of.size(); ++i) {
        if (of[i].writes) writer = of[i].op;
        const auto [first, last] = rows_between(of[i].op, of[i + 1].op);
        // The bound knows no time at which the peer lane runs an op.
        if (first == last || rows_.is_peer(of[i].op) || rows_.is_peer(of[i + 1].op)) continue;
        Pause& pause = pauses[{writer, rows_.in_front(of[i].op), rows_.in_front(of[i + 1].op), first, last}];
        pause.groups.push_back(id);
        pause.after = of[i].op;
        pause.before = of[i + 1].op;
        pause.writer = writer;
        pause.bytes += group_bytes(id);
      }
    }
    // An op that makes several groups makes all of them in one run, so its time counts for the largest group.
    // Each pause of one group needs a run of its own.
    std::map<OpId, TensorId> largest;
    for (const auto& [key, pause] : pauses)
      for (TensorId id : pause.groups) {
        TensorId& most = largest.try_emplace(pause.writer, id).first->second;
        if (group_bytes(id) > group_bytes(most)) most = id;
      }
    for (const auto& [key, pause] : pauses) {
      const auto& of = pause.groups;
      add_pause(pause,
                pause.writer != no_id && std::find(of.begin(), of.end(), largest[pause.writer]) != of.end());
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
  // Returns the rows strictly between two ops, as a range of indices.
  std::pair<std::size_t, std::size_t> rows_between(OpId after, OpId before) const {
    std::size_t first = 0;
    while (first < rows_.gate() && rows_.all()[first].op <= after) ++first;
    std::size_t last = first;
    while (last < rows_.gate() && rows_.all()[last].op < before) ++last;
    return {first, last};
  }
  // Adds the decision of one pause. `counts`: whether it has the writer's time.
  void add_pause(const Pause& pause, bool counts) {
    const auto in_pause = [&](OpId op) { return pause.after < op && op < pause.before; };
    ShareDecision decision;
    const auto option = [&](auto&& there) -> ShareCost& {
      ShareCost& cost = decision.options.emplace_back();
      for (TensorId id : pause.groups)
        rows_.stay(id, group_bytes(id), cost, [&](OpId op) { return in_pause(op) && there(op); });
      return cost;
    };
    const auto rebuild = [&](ShareTimes& lanes) {
      if (counts) add_rebuilding(pause.writer, pause.bytes, lanes);
    };
    const auto nowhere = [](OpId) { return false; };
    const auto across = [&](auto&& there) -> ShareCost& {
      ShareCost& cost = option(there);
      costs_.add_host(pause.bytes, cost);
      return cost;
    };
    option([](OpId) { return true; });
    if (rows_.in_front(pause.after) == rows_.in_front(pause.before)) {
      // One copy on the host may serve several pauses, so its transfer to the host counts for none of them.
      for (const bool again : {false, true}) {
        ShareCost& cost = option(nowhere);
        auto& lanes = rows_.in_front(pause.before) ? cost.front : cost.back;
        if (!again) costs_.add_in(pause.bytes, lanes);
        if (again && counts) costs_.add_op(pause.writer, lanes);
      }
    } else {
      const auto until_turn = [&](OpId op) { return rows_.in_front(op) || op == rows_.turn(); };
      const auto from_turn = [&](OpId op) { return !rows_.in_front(op) || op == rows_.turn(); };
      ShareCost& at_turn = across(nowhere);
      costs_.add_out(pause.bytes, at_turn.front);
      costs_.add_in(pause.bytes, at_turn.back);
      rebuild(option(nowhere).back);
      ShareCost& before = across(from_turn);
      costs_.add_out(pause.bytes, before.front);
      costs_.add_in(pause.bytes, before.front);
      if (ShareCost& cost = option(from_turn); counts) costs_.add_op(pause.writer, cost.front);
      ShareCost& behind = across(until_turn);  // the copy may have left before the turn
      costs_.add_out(pause.bytes, behind.front);
      costs_.add_in(pause.bytes, behind.back);
      ShareCost& all_behind = across(until_turn);
      costs_.add_out(pause.bytes, all_behind.back);
      costs_.add_in(pause.bytes, all_behind.back);
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
      if (!rows_.in_front(op) && (!rows_.is_far() || graph_.op(op).phase == Phase::backward))
        for (TensorId id : graph_.op(op).reads) read_in_back_[rows_.group_of(id)] = 1;
      if (graph_.op(op).phase != Phase::forward) continue;
      for (TensorId id : graph_.op(op).reads) ++readers_[id];
      for (TensorId id : graph_.op(op).writes) producer_[id] = op;
    }
    for (const ActivationItem& item : problem_.items) {
      makes_item_[item.writer] = 1;
      for (BucketId bucket : item.buckets)
        in_item_[rows_.group_of(problem_.layout.buckets[bucket].tensors.front().tensor)] = 1;
    }
  }
  // Adds the time of the op and, recursively, of the maker of each operand that no other forward op reads and
  // that is in no item, if this op overwrites it or it is no smaller than the `bytes` that are rebuilt: to
  // store such an operand instead would save nothing.
  void add_rebuilding(OpId op, Bytes bytes, ShareTimes& lanes) const {
    costs_.add_op(op, lanes);
    for (TensorId id : graph_.op(op).reads) {
      const OpId producer = producer_[id];
      if (producer == no_id || readers_[id] > 1 || makes_item_[producer]) continue;
      const bool overwritten =
          std::any_of(graph_.op(op).writes.begin(), graph_.op(op).writes.end(),
                      [&](TensorId written) { return rows_.group_of(written) == rows_.group_of(id); });
      if (overwritten || (!in_item_[rows_.group_of(id)] && graph_.tensor(id).bytes() >= bytes))
        add_rebuilding(producer, bytes, lanes);
    }
  }

  const BoundCosts& costs_;
  const BoundRows& rows_;
  const Problem& problem_;
  const Graph& graph_;
  std::vector<ShareDecision> decisions_;
  std::vector<OpId> producer_;              // by tensor: the forward op that makes it
  std::vector<int> readers_;                // by tensor: the number of forward ops that read it
  std::vector<std::uint8_t> in_item_;       // 1 for groups in an item
  std::vector<std::uint8_t> read_in_back_;  // by group: an op behind the turn reads it
  std::vector<std::uint8_t> makes_item_;    // 1 for ops that make an item
};

}  // namespace

std::vector<ShareDecision> activation_decisions(const BoundCosts& costs) {
  return ActivationDecisions(costs).make();
}

}  // namespace stowage
