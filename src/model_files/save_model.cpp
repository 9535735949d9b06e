#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "src/base/output_file.h"
#include "src/graph/finite.h"
#include "src/model_files/config_json.h"
#include "src/model_files/convert.h"
#include "src/model_files/parameter_parts.h"
#include "src/model_files/save_layout.h"
#include "stowage/error.h"
#include "stowage/model_files.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t saved_at_once = std::int64_t{1} << 17;  // elements

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
        writer.write(index, static_cast<Bytes>(run.stored) * element,
                     converted(gathered(run, begin), tensor.type));
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

  // The type of the values that `load` reads.
  DataType loaded_type() const { return parameter_.low == no_id ? type_ : DataType::f32; }

  std::span<const std::byte> gathered(const Run& run, std::int64_t begin) {
    const Bytes element = size_of(loaded_type());
    const auto count = static_cast<std::size_t>(run.count);
    const std::byte* from = values_.data() + static_cast<std::size_t>(run.element - begin) * element;
    if (run.stride == 1) return {from, count * element};
    gathered_.resize(count * element);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(gathered_.data() + i * element, from + i * static_cast<std::size_t>(run.stride) * element,
                  element);
    return gathered_;
  }

  // Returns the values in the file's type, rounded to the nearest, ties to even.
  std::span<const std::byte> converted(std::span<const std::byte> values, StoredType type) {
    const StoredType loaded = *stored_type_of(loaded_type());
    if (loaded == type) return values;
    converted_.resize(values.size() / size_of(loaded) * size_of(type));
    convert(loaded, values, data_type_of(type), converted_);
    if (first_non_finite(data_type_of(type), converted_) && !first_non_finite(loaded_type(), values))
      throw InvalidInput(
          fmt::format("a weight is too large for {}, in which the model was read; export it in "
                      "bf16 or f32",
                      to_string(type)));
    return converted_;
  }

  const ParameterParts& parameter_;
  const ParameterAccess& access_;
  DataType type_;
  std::vector<std::byte> values_, low_, masters_, gathered_, converted_;
};

// The source of the values that are saved.
struct Source {
  const ModelDescription& model;
  const Graph& graph;
  const std::vector<ParameterParts>& parameters;
  const ParameterAccess& access;
  const TensorFiles* read_from;  // the tensors that are copied
  const TensorFiles* beyond;     // the rows that the graph lacks
};

// `name`: usual name of the tensor.
const StoredTensor& read_as(const Source& source, const std::string& name, const StoredTensor& tensor) {
  const StoredTensor* found = nullptr;
  if (source.beyond != nullptr) {
    for (const std::string& accepted : accepted_names(source.model, name))
      if (found == nullptr) found = source.beyond->find(accepted);
  }
  if (found != nullptr && found->shape == tensor.shape && is_real(found->type)) return *found;
  throw InvalidInput(
      fmt::format("the graph has fewer rows of '{}' than the model's {}, and no file has the others: "
                  "give the files that the model was read from, or describe fewer positions",
                  name, tensor.shape[0]));
}

// Writes the rows behind the parameter's own, for a graph with fewer rows than the model's files.
void write_beyond(const Source& source, const ParameterParts& parameter, std::size_t index,
                  const StoredTensor& tensor, SafetensorsWriter& writer) {
  const Bytes element = size_of(tensor.type);
  const auto all = static_cast<std::int64_t>(tensor.bytes / element);
  std::int64_t at = parameter.stored_rows * parameter.columns;
  if (parameter.parts.size() > 1 || at >= all) return;
  const StoredTensor& stored = read_as(source, parameter.parts.front().name, tensor);
  const DataType saved = data_type_of(tensor.type);
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

// Copies a tensor of the source that is no parameter.
void write_copy(const TensorFiles& source, const StoredTensor& stored, std::size_t index,
                SafetensorsWriter& writer) {
  constexpr Bytes bytes_at_once = saved_at_once * 4;
  std::vector<std::byte> values;
  for (Bytes at = 0; at < stored.bytes; at += values.size()) {
    values.resize(std::min(bytes_at_once, stored.bytes - at));
    source.read(stored, at, values);
    writer.write(index, at, values);
  }
}

SafetensorsHeader header_of(const SavedFile& file) {
  if (file.header != nullptr) return *file.header;
  SafetensorsHeader header;
  header.metadata = file.metadata;
  for (const SavedTensor& saved : file.tensors) header.tensors.push_back(saved.tensor);
  return header;
}

void write_file_of(const std::string& path, const SavedFile& file, const Source& source) {
  SafetensorsWriter writer(path, header_of(file), file.beginning);
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const SavedTensor& saved = file.tensors[i];
    if (saved.copied != nullptr) {
      write_copy(*source.read_from, *saved.copied, i, writer);
      continue;
    }
    for (const auto& [number, part] : saved.parts) {
      const ParameterParts& parameter = source.parameters[number];
      PartWriter(parameter, source.access, source.graph.tensor(parameter.parameter).type)
          .run(part, i, writer.tensors()[i], writer);
      if (saved.parts.size() == 1) write_beyond(source, parameter, i, writer.tensors()[i], writer);
    }
  }
  writer.commit();
}

}  // namespace

void save_model(const std::string& folder, const ModelDescription& model, const Graph& graph,
                const ParameterAccess& access, const SaveOptions& options) {
  const std::vector<ParameterParts> parameters = parameter_parts(model, graph);
  const SaveLayout layout = save_layout(model, graph, parameters, options);
  const TensorFiles* beyond = options.beyond != nullptr ? options.beyond : options.source;
  const auto path = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  for (const SavedFile& file : layout.files)
    write_file_of(path(file.name), file, {model, graph, parameters, access, options.source, beyond});
  if (!layout.index.empty()) write_file("", path("model.safetensors.index.json"), layout.index);
  write_file("", path("config.json"), config_json(model, layout.type_word));
}

}  // namespace stowage
