// The update phase: what follows forward and backward when AdamW trains the parameters.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stowage/graph.h"
#include "stowage/graph_builder.h"

namespace stowage {

// Bytes of all operands, each read or written once: the traffic of an op that nobody described closer.
double operand_bytes(const Graph& graph, const Op& op);

// By tensor: the op that writes it, the last one of several; no_id where none does.
std::vector<OpId> producers_of(const Graph& graph);

// Those that no op reads come last.
std::vector<TensorId> parameters_by_first_use(const Graph& graph);
// Of these, those that are trained.
std::vector<TensorId> trained_by_first_use(const Graph& graph);

// The gradient that a parameter's update takes, which a backward op writes.
struct FinalGradient {
  TensorId tensor = no_id;
  std::int64_t count = 0;  // of its elements, those that are no padding (share_state.h)
};

// Adds a "square_sum" op behind each op that completes a parameter's gradient, the "clip" op, and one "adamw"
// op per parameter in order of first use. A parameter that `optimizer.grid` cuts has one of each for every
// slice. Where the ranks have several gradient groups in all, the grid cuts none, and norms are summed by
// pieces of parameters (share_state.h) in the tree of groups; where there are several ranks, each adds up its
// own pieces, gathers what the others have, and does so with the loss. `gradients`: by tensor, of each
// parameter. `graph` has no update ops yet, and shapes that do not overflow; check() is to follow.
void append_update(Graph& graph, const std::vector<FinalGradient>& gradients, const AdamW& optimizer);

// Why an update of the graph may not be made for good before all gradients are known
// (Plan::optimizer_in_backward), and what to do; empty: it may.
std::string why_updates_wait(const Graph& graph);

// Throws InvalidInput with that reason if there is one.
void require_no_clipping(const Graph& graph);

// Collects ops by where they go; ids count the graph's ops as they are before `apply`.
class OpInsertion {
 public:
  explicit OpInsertion(const Graph& graph) : before_(graph.ops.size()), behind_(graph.ops.size()) {}

  // Behind those that were inserted there already.
  void before(OpId op, Op inserted) { before_[op].push_back(std::move(inserted)); }
  void behind(OpId op, Op inserted) { behind_[op].push_back(std::move(inserted)); }

  // Once. The graph has the ops that it had.
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
