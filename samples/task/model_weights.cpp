#include "samples/task/model_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "samples/task/forward_pass.h"
#include "src/model_files/convert.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"

namespace stowage::samples {
namespace {

Graph forward_graph(const ModelFamily& family, ModelConfig sizes, DataType type) {
  GraphBuilder builder(type);
  sizes = without_dropout(std::move(sizes), 1);
  if (!family.learned_positions) sizes.sequence = 1;
  const BuiltModel model = family.build(builder, sizes);
  return up_to(builder.finish_without_update(model.loss), {model.logits.id}).graph;
}

}  // namespace

ModelWeights::ModelWeights(const ModelFamily& family, ModelConfig sizes, DataType type)
    : family_(&family),
      sizes_(std::move(sizes)),
      type_(type),
      graph_(forward_graph(family, sizes_, type)),
      values_(graph_.tensors.size()) {}

Bytes ModelWeights::bytes() const {
  Bytes all = 0;
  for (const Tensor& tensor : graph_.tensors)
    if (tensor.kind == TensorKind::parameter) all += tensor.bytes();
  return all;
}

TensorId ModelWeights::find(std::string_view name) const {
  const auto found = std::find_if(graph_.tensors.begin(), graph_.tensors.end(), [&](const Tensor& tensor) {
    return tensor.kind == TensorKind::parameter && tensor.name == name;
  });
  if (found == graph_.tensors.end()) throw InvalidInput(fmt::format("the model has no parameter '{}'", name));
  return static_cast<TensorId>(found - graph_.tensors.begin());
}

std::span<std::byte> ModelWeights::value(TensorId id) {
  const Bytes bytes = graph_.tensor(id).bytes();
  if (values_[id] == nullptr) values_[id] = std::make_unique_for_overwrite<std::byte[]>(bytes);
  return {values_[id].get(), bytes};
}

std::span<std::byte> ModelWeights::value(std::string_view name) { return value(find(name)); }

std::span<const std::byte> ModelWeights::value(std::string_view name) const {
  const TensorId id = find(name);
  return {values_[id].get(), values_[id] == nullptr ? 0 : graph_.tensor(id).bytes()};
}

void ModelWeights::take(const ReadParameter& read) {
  for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.kind == TensorKind::parameter) convert(StoredType::f32, read(tensor.name), type_, value(id));
  }
}

void ModelWeights::fill(TensorId id, const ParameterAccess::FillPiece& piece) { piece(0, value(id)); }

void ModelWeights::write(TensorId id, Bytes offset, std::span<const std::byte> from) {
  std::memcpy(value(id).data() + offset, from.data(), from.size());
}

void ModelWeights::read(TensorId id, Bytes offset, std::span<std::byte> into) {
  std::memcpy(into.data(), value(id).data() + offset, into.size());
}

}  // namespace stowage::samples
