#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "src/base/output_file.h"
#include "src/model_files/convert.h"
#include "src/model_files/family_files.h"
#include "src/model_files/parameter_parts.h"
#include "stowage/error.h"
#include "stowage/model_files.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t saved_at_once = std::int64_t{1} << 17;  // elements

// A tensor of the files, and the part of a parameter that it holds.
struct Saved {
  StoredTensor tensor;
  std::size_t parameter = 0;
  std::size_t part = 0;
};

StoredType saved_type(const Graph& graph, const ParameterParts& parameter) {
  const DataType type = graph.tensor(parameter.parameter).type;
  if (parameter.low != no_id) return StoredType::f32;  // the f32 master weight is saved
  const auto stored = stored_type_of(type);
  if (stored) return *stored;
  throw InvalidInput(fmt::format("parameter '{}' is of type {}; build the graph in f32, f64, bf16 or f16",
                                 graph.tensor(parameter.parameter).name, to_string(type)));
}

// Returns the tensors by name, as the safetensors library sorts tensors of one type.
std::vector<Saved> all_saved(const Graph& graph, const std::vector<ParameterParts>& parameters) {
  std::vector<Saved> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t part = 0; part < parameters[i].parts.size(); ++part) {
      Saved saved{{}, i, part};
      saved.tensor.name = parameters[i].parts[part].name;
      saved.tensor.shape = parameters[i].parts[part].shape;
      saved.tensor.type = saved_type(graph, parameters[i]);
      saved.tensor.bytes = size_of(saved.tensor.type);
      for (const std::int64_t extent : saved.tensor.shape) saved.tensor.bytes *= static_cast<Bytes>(extent);
      all.push_back(std::move(saved));
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Saved& a, const Saved& b) { return a.tensor.name < b.tensor.name; });
  return all;
}

// Cuts the tensors into shards: consecutive tensors, as many as fit, but at least one.
std::vector<std::vector<Saved>> shards_of(const std::vector<Saved>& all, Bytes most) {
  std::vector<std::vector<Saved>> shards;
  Bytes filled = 0;
  for (const Saved& saved : all) {
    if (shards.empty() || filled + saved.tensor.bytes > most) {
      shards.emplace_back();
      filled = 0;
    }
    filled += saved.tensor.bytes;
    shards.back().push_back(saved);
  }
  return shards;
}

// Writes one part of a parameter, through small buffers.
class PartWriter {
 public:
  PartWriter(const ParameterParts& parameter, const ParameterAccess& access, DataType type)
      : parameter_(parameter), access_(access), type_(type) {}

  void run(std::size_t part, std::size_t index, const StoredTensor& tensor, SafetensorsWriter& writer) {
    const Bytes element = size_of(tensor.type);
    const std::int64_t all = parameter_.stored_rows * parameter_.columns;
    for (std::int64_t begin = 0; begin < all; begin += saved_at_once) {
      const std::int64_t end = std::min(all, begin + saved_at_once);
      bool loaded = false;
      for_each_run(parameter_, begin, end, [&](const Run& run) {
        if (run.part != part) return;
        if (!loaded) load(begin, end);
        loaded = true;
        writer.write(index, static_cast<Bytes>(run.stored) * element, gathered(run, begin, element));
      });
    }
  }

 private:
  void load(std::int64_t begin, std::int64_t end) {
    const auto count = static_cast<std::size_t>(end - begin);
    const Bytes element = size_of(type_);
    values_.resize(count * element);
    access_.read(parameter_.parameter, static_cast<Bytes>(begin) * element, values_);
    if (parameter_.low == no_id) return;
    low_.resize(count * low_bytes(type_));
    access_.read(parameter_.low, static_cast<Bytes>(begin) * low_bytes(type_), low_);
    masters_.resize(count * 4);
    join_masters(type_, values_, low_, masters_);
    values_.swap(masters_);
  }

  std::span<const std::byte> gathered(const Run& run, std::int64_t begin, Bytes element) {
    const auto count = static_cast<std::size_t>(run.count);
    const std::byte* from = values_.data() + static_cast<std::size_t>(run.element - begin) * element;
    if (run.stride == 1) return {from, count * element};
    gathered_.resize(count * element);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(gathered_.data() + i * element, from + i * static_cast<std::size_t>(run.stride) * element,
                  element);
    return gathered_;
  }

  const ParameterParts& parameter_;
  const ParameterAccess& access_;
  DataType type_;
  std::vector<std::byte> values_, low_, masters_, gathered_;
};

// The source of the values that are saved.
struct Source {
  const ModelDescription& model;
  const Graph& graph;
  const std::vector<ParameterParts>& parameters;
  const ParameterAccess& access;
  const TensorFiles* beyond;
};

const StoredTensor& read_as(const Source& source, const StoredTensor& tensor) {
  const StoredTensor* found = nullptr;
  if (source.beyond != nullptr) {
    for (const std::string& name : accepted_names(source.model, tensor.name))
      if (found == nullptr) found = source.beyond->find(name);
  }
  if (found != nullptr && found->shape == tensor.shape && is_real(found->type)) return *found;
  throw InvalidInput(
      fmt::format("the graph has fewer rows of '{}' than the model's {}, and no file has the others: "
                  "give the files that the model was read from, or describe fewer positions",
                  tensor.name, tensor.shape[0]));
}

// Writes the rows behind the parameter's own, for a graph with fewer rows than the model's files.
void write_beyond(const Source& source, const ParameterParts& parameter, std::size_t index,
                  const StoredTensor& tensor, SafetensorsWriter& writer) {
  const Bytes element = size_of(tensor.type);
  const auto all = static_cast<std::int64_t>(tensor.bytes / element);
  std::int64_t at = parameter.stored_rows * parameter.columns;
  if (parameter.parts.size() > 1 || at >= all) return;
  const StoredTensor& stored = read_as(source, tensor);
  const DataType type = source.graph.tensor(parameter.parameter).type;
  const DataType saved = parameter.low != no_id ? DataType::f32 : type;
  std::vector<std::byte> read, values;
  for (; at < all; at += saved_at_once) {
    const auto count = static_cast<Bytes>(std::min(saved_at_once, all - at));
    read.resize(count * size_of(stored.type));
    values.resize(count * element);
    source.beyond->read(stored, static_cast<Bytes>(at) * size_of(stored.type), read);
    convert(stored.type, read, saved, values);
    writer.write(index, static_cast<Bytes>(at) * element, values);
  }
}

void write_shard(const std::string& path, const std::vector<Saved>& shard, const Source& source) {
  std::vector<StoredTensor> tensors;
  for (const Saved& saved : shard) tensors.push_back(saved.tensor);
  SafetensorsWriter writer(path, std::move(tensors));
  for (std::size_t i = 0; i < shard.size(); ++i) {
    const ParameterParts& parameter = source.parameters[shard[i].parameter];
    PartWriter(parameter, source.access, source.graph.tensor(parameter.parameter).type)
        .run(shard[i].part, i, writer.tensors()[i], writer);
    write_beyond(source, parameter, i, writer.tensors()[i], writer);
  }
  writer.commit();
}

void require_whole(const ModelDescription& model, const std::vector<Saved>& all) {
  const std::string_view last = files_of(*model.family).whole_by;
  const bool there =
      std::any_of(all.begin(), all.end(), [&](const Saved& saved) { return saved.tensor.name == last; });
  if (!there)
    throw InvalidInput(fmt::format(
        "the graph has no parameter for '{}', which the model's files hold; build the whole model", last));
}

}  // namespace

void save_model(const std::string& folder, const ModelDescription& model, const Graph& graph,
                const ParameterAccess& access, const SaveOptions& options) {
  const std::vector<ParameterParts> parameters = parameter_parts(model, graph);
  const std::vector<Saved> all = all_saved(graph, parameters);
  require_whole(model, all);
  const auto shards = shards_of(all, options.shard_bytes);
  const auto path = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  std::map<std::string, std::string> index;
  Bytes total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(path(name), shards[i], {model, graph, parameters, access, options.beyond});
    for (const Saved& saved : shards[i]) {
      index[saved.tensor.name] = name;
      total += saved.tensor.bytes;
    }
  }
  if (shards.size() > 1)
    write_file("", path("model.safetensors.index.json"), safetensors_index(index, total));
  write_file("", path("config.json"), to_json(model));
}

}  // namespace stowage
