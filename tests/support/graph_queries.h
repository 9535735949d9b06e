// Finds tensors and ops of a graph by name, for tests.
#pragma once

#include <string>
#include <vector>

#include "stowage/error.h"
#include "stowage/graph.h"

namespace stowage::test {

inline TensorId tensor_named(const Graph& graph, const std::string& name) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensors[id].name == name) return id;
  }
  throw InvalidInput("the graph has no tensor '" + name + "'; correct the test");
}

inline OpId op_named(const Graph& graph, const std::string& name) {
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    if (graph.ops[id].name == name) return id;
  }
  throw InvalidInput("the graph has no op '" + name + "'; correct the test");
}

inline std::vector<std::string> op_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops) names.push_back(op.name);
  return names;
}

inline std::vector<std::string> tensor_names(const Graph& graph, const std::vector<TensorId>& ids) {
  std::vector<std::string> names;
  for (TensorId id : ids) names.push_back(graph.tensor(id).name);
  return names;
}

}  // namespace stowage::test
