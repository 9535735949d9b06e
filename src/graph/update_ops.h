// The update phase: the ops behind forward and backward when AdamW trains the parameters.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stowage/graph.h"
#include "stowage/graph_builder.h"

namespace stowage {

// Bytes of all operands, each read or written once: the assumed traffic of an op without a cost of its own.
double operand_bytes(const Graph& graph, const Op& op);

// Returns, by tensor, the last op that writes it; no_id if none does.
std::vector<OpId> producers_of(const Graph& graph);

// Returns the parameters by the first op that reads them; unread parameters come last.
std::vector<TensorId> parameters_by_first_use(const Graph& graph);
// The trained parameters, in the same order.
std::vector<TensorId> trained_by_first_use(const Graph& graph);

// The gradient that a parameter's update reads; a backward op writes it.
struct FinalGradient {
  TensorId tensor = no_id;
  std::int64_t count = 0;  // elements without padding (share_state.h)
};

// Adds a "square_sum" op behind each op that completes a parameter's gradient, the "clip" op, and one
// "adamw" op per parameter in order of first use. Vectors of at most 64 KiB that one unit completes have one
// "square_sums" op behind the last of them, unless norms are summed by pieces. A parameter that
// `optimizer.grid` cuts has one of each for every slice. If the ranks have several gradient groups in all,
// the grid cuts no parameter, and norms are summed by pieces of parameters (share_state.h) in the tree of
// groups. Several ranks each add up their own pieces, then gather the others' sums; likewise the loss.
// `gradients`: each parameter's gradient, by tensor. Requires that `graph` has no update ops yet, and shapes
// that do not overflow. The caller runs check() afterwards.
void append_update(Graph& graph, const std::vector<FinalGradient>& gradients, const AdamW& optimizer);

// Returns why updates of the graph may not be made for good before all gradients are known
// (Plan::optimizer_in_backward), and what to do; empty if they may.
std::string why_updates_wait(const Graph& graph);

// Throws InvalidInput with the reason of why_updates_wait, if there is one.
void require_no_clipping(const Graph& graph);

// Collects new ops by their places between a graph's ops; ids count the graph's ops before `apply`.
class OpInsertion {
 public:
  explicit OpInsertion(const Graph& graph) : before_(graph.ops.size()), behind_(graph.ops.size()) {}

  // Inserts behind the ops that were inserted there already.
  void before(OpId op, Op inserted) { before_[op].push_back(std::move(inserted)); }
  void behind(OpId op, Op inserted) { behind_[op].push_back(std::move(inserted)); }

  // Called once. Requires that the graph's ops are unchanged.
  void apply(Graph& graph) {
    std::vector<Op> all;
    const auto move = [&](std::vector<Op>& ops) {
      for (Op& op : ops) all.push_back(std::move(op));
    };
    for (OpId id = 0; id < before_.size(); ++id) {
      move(before_[id]);
      all.push_back(std::move(graph.ops[id]));
      move(behind_[id]);
    }
    graph.ops = std::move(all);
  }

 private:
  std::vector<std::vector<Op>> before_, behind_;
};

}  // namespace stowage
