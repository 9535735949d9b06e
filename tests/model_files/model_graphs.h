// Graphs that are parameters alone, where their values are kept, and the committed files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "stowage/model_files.h"

namespace stowage::test {

// "gpt2", "bert", …: a folder of tests/fixtures/model_files.
std::string fixture(const std::string& name);

// The whole pre-training model with query, key and value in one tensor, as models.h names it.
// `rows`: of the vocabulary, padding included.
Graph bert_parameters(const ModelDescription& model, std::int64_t rows, bool pretraining = true);

// The graph of a GPT with its update phase, of `rows` tokens and `sequence` positions.
Graph gpt_graph(const ModelDescription& model, std::int64_t rows, std::int64_t sequence,
                DataType type = DataType::f32);

// Values of a graph's parameters and optimizer state, filled in pieces of so many bytes.
class Values {
 public:
  explicit Values(const Graph& graph, Bytes piece = Bytes{1} << 40U, std::byte start = std::byte{0xa5});
  ParameterAccess access();

  const std::vector<std::byte>& of(const std::string& name) const;
  // Element `index` of an f32 tensor.
  float real(const std::string& name, std::size_t index) const;
  const std::vector<std::vector<std::byte>>& all() const { return values_; }

 private:
  TensorId id_of(const std::string& name) const;

  const Graph& graph_;
  Bytes piece_;
  std::vector<std::vector<std::byte>> values_;
};

// A file of the tensors of `from`, each maybe renamed (or left out, with an empty name).
using Rename = std::string (*)(const std::string&);
void copy_renamed(const TensorFiles& from, const std::string& to, Rename rename);

// All bytes of a tensor.
std::vector<std::byte> bytes_of(const TensorFiles& files, const std::string& name);

}  // namespace stowage::test
