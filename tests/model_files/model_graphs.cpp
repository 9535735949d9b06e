#include "tests/model_files/model_graphs.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace stowage::test {
namespace {

void add(Graph& graph, const std::string& name, std::vector<std::int64_t> shape) {
  graph.tensors.push_back({name, DataType::f32, std::move(shape), TensorKind::parameter, {}});
}
void add_linear(Graph& graph, const std::string& name, std::int64_t in, std::int64_t out) {
  add(graph, name + ".weight", {in, out});
  add(graph, name + ".bias", {out});
}
void add_norm(Graph& graph, const std::string& name, std::int64_t width) {
  add(graph, name + ".weight", {width});
  add(graph, name + ".bias", {width});
}

}  // namespace

std::string fixture(const std::string& name) {
  return std::string(STOWAGE_ROOT) + "/tests/fixtures/model_files/" + name;
}

Graph bert_parameters(const ModelDescription& model, std::int64_t rows, bool pretraining) {
  Graph graph;
  const std::int64_t width = model.config.width;
  const std::string embeddings = "bert.embeddings.";
  add(graph, embeddings + "word_embeddings.weight", {rows, width});
  add(graph, embeddings + "position_embeddings.weight", {model.config.sequence, width});
  if (pretraining) add(graph, embeddings + "token_type_embeddings.weight", {2, width});
  add_norm(graph, embeddings + "LayerNorm", width);
  for (std::int64_t i = 0; i < model.config.layers; ++i) {
    const std::string layer = "bert.encoder.layer." + std::to_string(i) + ".";
    add_linear(graph, layer + "attention.self.query_key_value", width, 3 * width);
    add_linear(graph, layer + "attention.output.dense", width, width);
    add_norm(graph, layer + "attention.output.LayerNorm", width);
    add_linear(graph, layer + "intermediate.dense", width, 4 * width);
    add_linear(graph, layer + "output.dense", 4 * width, width);
    add_norm(graph, layer + "output.LayerNorm", width);
  }
  if (!pretraining) return graph;
  add_linear(graph, "bert.pooler.dense", width, width);
  add_linear(graph, "cls.predictions.transform.dense", width, width);
  add_norm(graph, "cls.predictions.transform.LayerNorm", width);
  add(graph, "cls.predictions.bias", {rows});
  add_linear(graph, "cls.seq_relationship", width, 2);
  return graph;
}

Graph gpt_graph(const ModelDescription& model, std::int64_t rows, std::int64_t sequence, DataType type) {
  GraphBuilder builder(type);
  ModelConfig config = model.config;
  config.vocabulary = rows;
  config.sequence = sequence;
  config.batch = 1;
  const BuiltModel built = gpt(builder, config);
  return builder.finish(built.loss, AdamW{});
}

Values::Values(const Graph& graph, Bytes piece, std::byte start) : graph_(graph), piece_(piece) {
  for (const Tensor& tensor : graph.tensors) {
    const bool kept = tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state;
    values_.emplace_back(kept ? tensor.bytes() : 0, start);
  }
}

ParameterAccess Values::access() {
  return {[this](TensorId id, const ParameterAccess::FillPiece& fill) {
            std::vector<std::byte>& value = values_.at(id);
            for (Bytes done = 0; done < value.size(); done += piece_)
              fill(done, {value.data() + done, std::min<Bytes>(piece_, value.size() - done)});
          },
          [this](TensorId id, Bytes offset, std::span<const std::byte> value) {
            if (offset + value.size() > values_.at(id).size()) throw std::out_of_range("write");
            std::memcpy(values_[id].data() + offset, value.data(), value.size());
          },
          [this](TensorId id, Bytes offset, std::span<std::byte> into) {
            if (offset + into.size() > values_.at(id).size()) throw std::out_of_range("read");
            std::memcpy(into.data(), values_[id].data() + offset, into.size());
          }};
}

TensorId Values::id_of(const std::string& name) const {
  for (TensorId id = 0; id < graph_.tensors.size(); ++id)
    if (graph_.tensor(id).name == name) return id;
  throw std::out_of_range(name);
}

const std::vector<std::byte>& Values::of(const std::string& name) const { return values_[id_of(name)]; }

float Values::real(const std::string& name, std::size_t index) const {
  float value = 0;
  std::memcpy(&value, of(name).data() + 4 * index, sizeof value);
  return value;
}

std::vector<std::byte> bytes_of(const TensorFiles& files, const std::string& name) {
  const StoredTensor* tensor = files.find(name);
  if (tensor == nullptr) throw std::out_of_range(name);
  std::vector<std::byte> value(tensor->bytes);
  files.read(*tensor, 0, value);
  return value;
}

void copy_renamed(const TensorFiles& from, const std::string& to, Rename rename) {
  std::vector<StoredTensor> tensors;
  std::vector<std::string> sources;
  for (const std::string_view name : from.names()) {
    const std::string renamed = rename(std::string(name));
    if (renamed.empty()) continue;
    tensors.push_back(*from.find(name));
    tensors.back().name = renamed;
    sources.emplace_back(name);
  }
  SafetensorsWriter writer(to, tensors);
  for (std::size_t i = 0; i < sources.size(); ++i) writer.write(i, 0, bytes_of(from, sources[i]));
  writer.commit();
}

}  // namespace stowage::test
