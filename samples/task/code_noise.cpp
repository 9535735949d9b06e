#include "samples/task/code_noise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kernels/cpu/codec.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "samples/task/forward_pass.h"
#include "stowage/graph_builder.h"

namespace stowage::samples {
namespace {

// Returns the names that the tensors have where the batch is not split.
std::set<std::string> names_of_coded(const Graph& training) {
  const std::string first = training.micro_batches > 1 ? "micro.0." : "";
  std::set<std::string> names;
  for (const Op& op : training.ops) {
    if (op.kernel != "encode") continue;
    const std::string& name = training.tensor(op.reads.front()).name;
    if (name.starts_with(first)) names.insert(name.substr(first.size()));
  }
  return names;
}

template <class T>
CodeNoise noise_of(std::string name, CodeBits bits, std::span<const float> exact) {
  std::vector<T> values(exact.size()), decoded(exact.size());
  std::transform(exact.begin(), exact.end(), values.begin(), [](float value) { return T(value); });
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> codes(coded_bytes(count, bits));
  cpu::encode(bits, count, values.data(), codes.data());
  cpu::decode(bits, count, codes.data(), decoded.data());
  double signal = 0, noise = 0, largest = 0;  // NaN once an error is
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(static_cast<float>(values[i]));
    const double error = std::abs(static_cast<double>(static_cast<float>(decoded[i])) - value);
    signal += value * value;
    noise += error * error;
    if (!(error <= largest)) largest = error;
  }
  const double ratio = noise == 0 ? std::numeric_limits<double>::infinity() : signal / noise;
  return {std::move(name), 10 * std::log10(ratio), largest};
}

CodeNoise noise_of(std::string name, CodeBits bits, DataType type, std::span<const float> exact) {
  if (type == DataType::bf16) return noise_of<Bfloat16>(std::move(name), bits, exact);
  if (type == DataType::f16) return noise_of<Float16>(std::move(name), bits, exact);
  return noise_of<float>(std::move(name), bits, exact);
}

// The step of one sample, and its coded tensors.
struct Sample {
  Graph graph;
  std::vector<TensorId> inputs, coded;
};
Sample sample_of(const Graph& training, const Options& options) {
  ModelConfig sizes = without_dropout(options.model, 1);
  sizes.packed = options.model.packed;
  sizes.sequence = std::min(sizes.sequence, most_noise_tokens);
  GraphBuilder builder;
  const BuiltModel model = options.family->build(builder, sizes);
  Sample sample{builder.finish_without_update(model.loss), {}, {}};
  for (const ModelInput& input : model.inputs) sample.inputs.push_back(input.value.id);
  const std::set<std::string> names = names_of_coded(training);
  for (TensorId id = 0; id < sample.graph.tensors.size(); ++id)
    if (names.contains(sample.graph.tensor(id).name)) sample.coded.push_back(id);
  return sample;
}

}  // namespace

std::vector<CodeNoise> code_noise(const Graph& training, const Options& options,
                                  const std::vector<std::span<const std::int32_t>>& inputs,
                                  const ReadParameter& read) {
  std::vector<CodeNoise> noises;
  if (!options.model.code_activations) return noises;
  const Sample sample = sample_of(training, options);
  if (sample.coded.empty()) return noises;
  std::vector<std::span<const std::int32_t>> of_sample;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    of_sample.push_back(
        inputs[i].first(static_cast<std::size_t>(sample.graph.tensor(sample.inputs[i]).elements())));
  std::set<std::string> names;
  for (const TensorId id : sample.coded) names.insert(sample.graph.tensor(id).name);
  const auto watch = [&](const Tensor& tensor, std::span<const std::byte> value) {
    if (!names.contains(tensor.name)) return;
    noises.push_back(noise_of(tensor.name, *options.model.code_activations, options.type, floats_of(value)));
  };
  ForwardPass(sample.graph, sample.inputs, {sample.coded.back()}).run(of_sample, read, watch);
  return noises;
}

}  // namespace stowage::samples
