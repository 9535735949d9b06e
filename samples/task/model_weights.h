// ModelWeights: the parameters of a model that writes text, in host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "samples/task/task.h"
#include "stowage/graph.h"
#include "stowage/model_files.h"
#include "stowage/models.h"

namespace stowage::samples {

// Each parameter is there once, whole, in the type in which the model computes. Its memory is taken when its
// first bytes are written. The parameters are those of a forward graph, whose ids and names they have.
class ModelWeights {
 public:
  // Throws InvalidInput for sizes that no model of the family has.
  ModelWeights(const ModelFamily& family, ModelConfig sizes, DataType type);

  const ModelFamily& family() const { return *family_; }
  const ModelConfig& sizes() const { return sizes_; }
  DataType type() const { return type_; }
  const Graph& graph() const { return graph_; }
  Bytes bytes() const;  // size of all parameters

  // Returns the parameter of this name, to read or to write.
  std::span<std::byte> value(std::string_view name);
  std::span<const std::byte> value(std::string_view name) const;
  // Reads every parameter, one at a time, and rounds it to the type.
  void take(const ReadParameter& read);

  // The calls of access_to (model_files.h).
  void fill(TensorId id, const ParameterAccess::FillPiece& piece);
  void write(TensorId id, Bytes offset, std::span<const std::byte> from);
  void read(TensorId id, Bytes offset, std::span<std::byte> into);

 private:
  TensorId find(std::string_view name) const;
  std::span<std::byte> value(TensorId id);

  const ModelFamily* family_;
  ModelConfig sizes_;
  DataType type_;
  Graph graph_;
  std::vector<std::unique_ptr<std::byte[]>> values_;
};

}  // namespace stowage::samples
