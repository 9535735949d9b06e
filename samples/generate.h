// Text from a trained model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/graph.h"
#include "stowage/models.h"

namespace stowage::samples {

// The part of a graph that computes some of its tensors: the ops up to the last that writes one of
// `outputs`, and the tensors these touch, renumbered.
struct SubGraph {
  Graph graph;
  std::vector<TensorId> outputs;  // in the new numbering, in the order asked for
};
SubGraph up_to(const Graph& graph, const std::vector<TensorId>& outputs);

// A parameter's value by its name.
using ReadParameter = std::function<std::vector<std::byte>(const std::string& name)>;

struct GenerateOptions {
  std::string_view prompt;  // at least one byte; its end is what the model sees first
  std::uint64_t bytes = 0;  // to generate
  double temperature = 0.8;
  std::uint64_t seed = 1;
};

// Hands each new byte to `emit`, which answers whether to go on. On the CPU, one sample of `config`'s
// sequence length at a time; the same bytes for the same parameters and options.
void generate(const GptConfig& config, const ReadParameter& read, const GenerateOptions& options,
              const std::function<bool(unsigned char)>& emit);

// The byte that a draw picks: the first whose cumulative probability, softmax(logits / temperature),
// exceeds `uniform` in [0, 1).
unsigned char pick(std::span<const float> logits, double temperature, double uniform);

// What a terminal may see of it: printable ASCII, line ends and tabs as they are, others as "\xNN".
std::string escaped(unsigned char byte);

}  // namespace stowage::samples
