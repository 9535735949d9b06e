#include "samples/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "samples/random_stream.h"
#include "stowage/evaluate.h"

namespace stowage::samples {
namespace {

// One sample through the model, again and again.
class Forward {
 public:
  Forward(GptConfig config, const ReadParameter& read, std::uint64_t seed)
      : Forward(make(config), read, seed, config) {}

  // The logits after the last byte of `text`, of which at most the last `sequence` count.
  std::span<const float> logits(std::string_view text) {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    if (text.size() > sequence) text.remove_prefix(text.size() - sequence);
    // Causal attention: what stands behind the text does not matter.
    std::vector<std::int32_t> tokens(sequence, 0);
    std::transform(text.begin(), text.end(), tokens.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    std::memcpy(evaluator_.value(tokens_).data(), tokens.data(), sequence * sizeof(std::int32_t));
    evaluator_.run(0, 0);
    const auto* all = reinterpret_cast<const float*>(evaluator_.value(logits_).data());
    const auto vocabulary = static_cast<std::size_t>(config_.vocabulary);
    // Of a model with more tokens, those that are bytes.
    return {all + (text.size() - 1) * vocabulary, std::min<std::size_t>(vocabulary, 256)};
  }

 private:
  static SubGraph make(GptConfig& config) {
    config.batch = 1;
    config.micro_batches = 1;
    config.dropout = 0;
    config.head_tokens = 0;
    GraphBuilder builder;
    const Gpt model = gpt(builder, config);
    return up_to(builder.finish_without_update(model.loss), {model.tokens.id, model.logits.id});
  }

  Forward(SubGraph part, const ReadParameter& read, std::uint64_t seed, const GptConfig& config)
      : config_(config),
        evaluator_(part.graph, cpu_launch_table(), seed),
        tokens_(part.outputs[0]),
        logits_(part.outputs[1]) {
    for (TensorId id = 0; id < part.graph.tensors.size(); ++id) {
      const Tensor& tensor = part.graph.tensor(id);
      if (tensor.kind == TensorKind::parameter) evaluator_.value(id) = read(tensor.name);
    }
  }

  GptConfig config_;
  Evaluator evaluator_;
  TensorId tokens_;
  TensorId logits_;
};

// Uniform in [0, 1), 53 bits.
double uniform(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, RandomStream::generation, index, 0) >> 11) * 0x1p-53;
}

bool writes_any(const Op& op, const std::vector<TensorId>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [&](TensorId id) {
    return std::find(op.writes.begin(), op.writes.end(), id) != op.writes.end();
  });
}

}  // namespace

SubGraph up_to(const Graph& graph, const std::vector<TensorId>& outputs) {
  std::size_t count = 0;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (writes_any(graph.ops[op], outputs)) count = op + 1;
  }
  SubGraph result;
  std::vector<TensorId> renumbered(graph.tensors.size(), no_id);
  const auto renumber = [&](TensorId& id) {
    if (renumbered[id] == no_id) {
      renumbered[id] = static_cast<TensorId>(result.graph.tensors.size());
      result.graph.tensors.push_back(graph.tensor(id));
    }
    id = renumbered[id];
  };
  result.graph.unit_names = graph.unit_names;
  for (std::size_t i = 0; i < count; ++i) {
    Op op = graph.ops[i];
    for (TensorId& id : op.reads) renumber(id);
    for (TensorId& id : op.writes) renumber(id);
    result.graph.ops.push_back(std::move(op));
  }
  for (TensorId id : outputs) {
    renumber(id);
    result.outputs.push_back(id);
  }
  return result;
}

unsigned char pick(std::span<const float> logits, double temperature, double uniform) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - largest) / temperature);
  };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += weight(logits[i]);
    if (sum > uniform * total) return static_cast<unsigned char>(i);
  }
  return static_cast<unsigned char>(logits.size() - 1);
}

std::string escaped(unsigned char byte) {
  const bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
  return plain ? std::string(1, static_cast<char>(byte)) : fmt::format("\\x{:02x}", byte);
}

void generate(const GptConfig& config, const ReadParameter& read, const GenerateOptions& options,
              const std::function<bool(unsigned char)>& emit) {
  Forward model(config, read, options.seed);
  std::string text(options.prompt);
  for (std::uint64_t i = 0; i < options.bytes; ++i) {
    const unsigned char next = pick(model.logits(text), options.temperature, uniform(options.seed, i));
    text.push_back(static_cast<char>(next));
    if (!emit(next)) return;
  }
}

}  // namespace stowage::samples
