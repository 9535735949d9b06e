#include "src/checkpoint/checkpoint_tensors.h"

#include <fmt/format.h>

#include <limits>

#include "stowage/error.h"

namespace stowage {

std::optional<Bytes> value_bytes(DataType type, std::span<const std::int64_t> shape) {
  Bytes bytes = size_of(type);
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<Bytes>(extent), &bytes)) return {};
  return bytes;
}

std::optional<Bytes> next_offset(const CheckpointTensor& tensor) {
  constexpr auto longest_file = static_cast<Bytes>(std::numeric_limits<std::int64_t>::max());
  Bytes end = 0;
  if (__builtin_add_overflow(tensor.offset, tensor.bytes, &end)) return {};
  if (end > longest_file - checkpoint_alignment) return {};
  return (end + checkpoint_alignment - 1) / checkpoint_alignment * checkpoint_alignment;
}

std::vector<TensorId> lasting_tensors(const Graph& graph) {
  std::vector<TensorId> ids;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const TensorKind kind = graph.tensor(id).kind;
    if (kind == TensorKind::parameter || kind == TensorKind::optimizer_state) ids.push_back(id);
  }
  return ids;
}

std::vector<CheckpointTensor> checkpoint_tensors(const Graph& graph) {
  std::vector<CheckpointTensor> tensors;
  Bytes end = 0;
  for (const TensorId id : lasting_tensors(graph)) {
    const Tensor& tensor = graph.tensor(id);
    const std::optional<Bytes> bytes = value_bytes(tensor.type, tensor.shape);
    tensors.push_back({tensor.name, tensor.kind, tensor.type, tensor.shape, end, bytes.value_or(0), {}});
    const std::optional<Bytes> next = next_offset(tensors.back());
    if (!bytes || !next)
      throw InvalidInput(fmt::format("'{}' ends where no file reaches: choose a smaller model", tensor.name));
    end = *next;
  }
  return tensors;
}

Bytes checkpoint_bytes(const std::vector<CheckpointTensor>& tensors) {
  return tensors.empty() ? 0 : next_offset(tensors.back()).value_or(0);
}

}  // namespace stowage
