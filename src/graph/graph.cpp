#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/graph/shape.h"
#include "stowage/graph.h"

namespace stowage {

Bytes size_of(DataType type) {
  switch (type) {
    case DataType::f64:
      return 8;
    case DataType::f32:
    case DataType::i32:
      return 4;
    case DataType::bf16:
    case DataType::i16:
    case DataType::f16:
      return 2;
    case DataType::u8:
      return 1;
  }
  return 0;
}

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::f32:
      return "f32";
    case DataType::f64:
      return "f64";
    case DataType::i32:
      return "i32";
    case DataType::bf16:
      return "bf16";
    case DataType::i16:
      return "i16";
    case DataType::f16:
      return "f16";
    case DataType::u8:
      return "u8";
  }
  return "?";
}

std::string_view to_string(TensorKind kind) {
  switch (kind) {
    case TensorKind::parameter:
      return "parameter";
    case TensorKind::gradient:
      return "gradient";
    case TensorKind::optimizer_state:
      return "optimizer_state";
    case TensorKind::activation:
      return "activation";
    case TensorKind::input:
      return "input";
    case TensorKind::workspace:
      return "workspace";
    case TensorKind::slice:
      return "slice";
  }
  return "?";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
  }
  return "?";
}

std::int64_t Tensor::elements() const {
  std::int64_t product = 1;
  for (std::int64_t dimension : shape) product *= dimension;
  return product;
}

Bytes Tensor::bytes() const { return static_cast<Bytes>(elements()) * size_of(type); }

Bytes Graph::offset_in_whole(TensorId id) const {
  const Tensor& tensor = tensors[id];
  return tensor.kind != TensorKind::slice ? 0
                                          : tensor.bytes() / static_cast<Bytes>(tensor.shape.front()) *
                                                static_cast<Bytes>(tensor.first_row);
}

std::vector<std::vector<TensorId>> Graph::slices() const {
  std::vector<std::vector<TensorId>> slices(tensors.size());
  for (TensorId id = 0; id < tensors.size(); ++id)
    if (is_slice(id)) slices[tensors[id].whole].push_back(id);
  return slices;
}

std::optional<Bytes> checked_bytes(const std::vector<std::int64_t>& shape, DataType type) {
  auto bytes = static_cast<std::int64_t>(size_of(type));
  for (std::int64_t dimension : shape) {
    if (dimension < 1 || __builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return static_cast<Bytes>(bytes);
}

std::string describe(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace stowage
