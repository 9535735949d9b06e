// New ops between those of a graph.
#pragma once

#include <utility>
#include <vector>

#include "stowage/graph.h"

namespace stowage {

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
