// Traces for tests: a graph as a trace, and the example of the document.
#pragma once

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "stowage/graph.h"

namespace stowage::test {

inline nlohmann::ordered_json names_of(const Graph& graph, const std::vector<TensorId>& ids) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const TensorId id : ids) names.push_back(graph.tensor(id).name);
  return names;
}

// Returns the graph as a trace: a line per tensor, then a line per op. It has all of the graph except
// attributes and initializers. `version` 2 has what version 1 lacks.
inline std::string trace_of(const Graph& graph, int version = 1) {
  using Json = nlohmann::ordered_json;
  Json header{{"stowage_trace", version}, {"loss", graph.tensor(graph.loss).name}};
  header["clip"] = graph.tensor(graph.clip).name;
  if (graph.samples > 0) header["samples"] = graph.samples;
  if (graph.tokens > 0) header["tokens"] = graph.tokens;
  std::string text = header.dump() + '\n';
  for (const Tensor& tensor : graph.tensors) {
    Json line{{"tensor", tensor.name},
              {"kind", to_string(tensor.kind)},
              {"type", to_string(tensor.type)},
              {"shape", tensor.shape}};
    if (!tensor.trained) line["trained"] = false;
    text += line.dump() + '\n';
  }
  for (const Op& op : graph.ops) {
    Json line{{"op", op.name}, {"phase", to_string(op.phase)}, {"kernel", op.kernel}};
    if (op.unit != no_id) line["unit"] = graph.unit_names[op.unit];
    line["reads"] = names_of(graph, op.reads);
    line["writes"] = names_of(graph, op.writes);
    line["may_alias"] = Json::array();
    for (const Alias& alias : op.may_alias)
      line["may_alias"].push_back(
          {graph.tensor(op.writes[alias.write]).name, graph.tensor(op.reads[alias.read]).name});
    line["flops"] = op.cost.flops;
    line["bytes"] = op.cost.bytes;
    if (op.cost.seconds) line["seconds"] = *op.cost.seconds;
    if (!op.replayable) line["replayable"] = false;
    if (op.cost.type) line["type"] = to_string(*op.cost.type);
    text += line.dump() + '\n';
  }
  return text;
}

// Returns the example block of docs/trace.md. `root`: the root of the repository.
inline std::string trace_example(const std::string& root) {
  std::ifstream file(root + "/docs/trace.md", std::ios::binary);
  const std::string document((std::istreambuf_iterator<char>(file)), {});
  const std::string fence = "```jsonl\n";
  const std::size_t begin = document.find(fence);
  if (begin == std::string::npos) return {};
  const std::size_t first = begin + fence.size();
  return document.substr(first, document.find("```", first) - first);
}

}  // namespace stowage::test
