// evaluate: runs a graph's ops one after another in ordinary host memory, every tensor in a buffer
// of its own. The plain meaning of a graph, to judge the engine by and to generate text with. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stowage/graph.h"
#include "stowage/launch_table.h"

namespace stowage {

class Evaluator {
 public:
  // Copies the graph. Parameters start from their initializers, all else at zero. Throws InvalidInput for an
  // op without a kernel.
  Evaluator(const Graph& graph, const LaunchTable& table, std::uint64_t seed);

  // Returns a tensor's bytes, to read or to set (inputs, parameters). A slice has no bytes: they are in its
  // whole tensor.
  std::vector<std::byte>& value(TensorId tensor) { return values_[tensor]; }
  const Graph& graph() const { return graph_; }

  // Runs every op of the graph, in program order, as step `step`.
  void run(std::uint64_t step, double learning_rate, double loss_scale = 1);

 private:
  Graph graph_;
  LaunchTable table_;
  std::uint64_t seed_;
  std::vector<std::vector<std::byte>> values_;
};

// Writes the values that the parameter's initializer gives to `value`.
void initialize(const Tensor& tensor, std::uint64_t seed, std::span<std::byte> value);

}  // namespace stowage
