// ForwardPass: a model's results for data that is not trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "samples/task/task.h"
#include "stowage/graph.h"
#include "stowage/launch_table.h"

namespace stowage::samples {

// The part of a graph that computes some of its tensors: the ops up to the last that writes one of
// `outputs`, and the tensors these touch, renumbered.
struct SubGraph {
  Graph graph;
  std::vector<TensorId> outputs;  // ids in `graph`, in the order asked for
};
SubGraph up_to(const Graph& graph, const std::vector<TensorId>& outputs);

// Returns the sizes for `batch` samples at once, each of one document, with the logits as a tensor, and
// without dropout and codes.
ModelConfig without_dropout(ModelConfig sizes, std::int64_t batch);

// Returns the number of samples at once whose logits are a quarter of a gibibyte at most; at least one.
std::int64_t samples_at_once(const ModelConfig& sizes, std::uint64_t samples);

// Runs a forward graph on the CPU, op by op. A parameter is read when an op needs it first and forgotten
// behind the last op that does, and the results of ops live as long: a model that does not fit in the
// device's memory needs no second copy on the host.
class ForwardPass {
 public:
  // `inputs` and `outputs` are tensors of `graph`, which may go on behind them.
  ForwardPass(const Graph& graph, const std::vector<TensorId>& inputs, const std::vector<TensorId>& outputs);

  // Sees a tensor that an op has written.
  using Watch = std::function<void(const Tensor& tensor, std::span<const std::byte> value)>;

  // Takes the values of the inputs, in their order. Returns the values of the outputs. Calls `watch`, if it
  // is given, for each result of each op.
  std::vector<std::vector<std::byte>> run(const std::vector<std::span<const std::int32_t>>& inputs,
                                          const ReadParameter& read, const Watch& watch = {}) const;

 private:
  void run(const Op& op, std::vector<std::vector<std::byte>>& values, const ReadParameter& read) const;

  std::size_t inputs_;
  SubGraph part_;  // its outputs: the pass's inputs, then the pass's outputs
  LaunchTable table_;
  std::vector<OpId> last_;  // last op that touches each tensor
};

// How well logits predict targets.
struct Score {
  double nats = 0;            // sum of -log probability over the targets
  std::uint64_t targets = 0;  // number of targets that are not negative
  std::uint64_t right = 0;    // number of these targets with the largest logit of their row
  double mean() const { return nats / static_cast<double>(targets); }
  double share_right() const { return static_cast<double>(right) / static_cast<double>(targets); }
  Score& operator+=(const Score& other);
};
// `logits` [targets.size(), columns], of which the first `vocabulary` count.
Score score(std::span<const float> logits, std::int64_t vocabulary, std::span<const std::int32_t> targets);

// Returns bytes as the f32 values that they are.
std::span<const float> floats_of(std::span<const std::byte> bytes);

}  // namespace stowage::samples
