#include "offload/engine/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "stowage/error.h"

namespace stowage {

Inputs::Inputs(const Graph& graph, std::span<const TensorPlace> places, const HostMemory& host)
    : graph_(graph) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).kind != TensorKind::input) continue;
    std::byte* const bucket = host.bucket(places[id].bucket);
    inputs_.push_back({id, bucket == nullptr ? nullptr : bucket + places[id].offset, nullptr});
  }
}

void Inputs::load(std::span<const InputData> inputs) {
  for (Input& input : inputs_) input.given = nullptr;
  for (const InputData& given : inputs) match(given);
  for (const Input& input : inputs_)
    if (input.given == nullptr)
      throw InvalidInput(fmt::format("input '{}' is missing: give every input of the graph to each step",
                                     graph_.tensor(input.tensor).name));
  for (const Input& input : inputs_)
    if (input.data != nullptr)
      std::memcpy(input.data, input.given->values.data(), input.given->values.size_bytes());
}

void Inputs::match(const InputData& given) {
  const auto input = std::find_if(inputs_.begin(), inputs_.end(), [&given](const Input& candidate) {
    return candidate.tensor == given.tensor;
  });
  if (input == inputs_.end())
    throw InvalidInput(fmt::format("tensor {} is no input of this graph: leave it out", given.tensor));
  const Tensor& tensor = graph_.tensor(given.tensor);
  if (input->given != nullptr) throw InvalidInput(fmt::format("input '{}' is given twice", tensor.name));
  if (given.values.size_bytes() != tensor.bytes())
    throw InvalidInput(fmt::format("input '{}' has {} bytes, but the graph was built for {}", tensor.name,
                                   given.values.size_bytes(), tensor.bytes()));
  input->given = &given;
}

}  // namespace stowage
