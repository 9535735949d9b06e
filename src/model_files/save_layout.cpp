#include "src/model_files/save_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/graph/json_field.h"
#include "src/model_files/convert.h"
#include "src/model_files/family_files.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Returns the type without a source: the work type, or f32 for a master weight.
StoredType usual_type(const Graph& graph, const ParameterParts& parameter) {
  const DataType type = graph.tensor(parameter.parameter).type;
  if (parameter.low != no_id) return StoredType::f32;
  const auto stored = stored_type_of(type);
  if (stored) return *stored;
  throw InvalidInput(fmt::format("parameter '{}' is of type {}; build the graph in f32, f64, bf16 or f16",
                                 graph.tensor(parameter.parameter).name, to_string(type)));
}

// Returns the type that the caller asks for; not set: the usual type, or as it was read.
std::optional<StoredType> type_asked_for(const SaveOptions& options) {
  if (options.type == SavedType::bf16) return StoredType::bf16;
  if (options.type == SavedType::f32) return StoredType::f32;
  if (options.type == SavedType::as_read && options.source == nullptr)
    throw InvalidInput("types as they were read need the files: give SaveOptions::source");
  return {};
}

// Returns the tensors of all parameters by name, as the safetensors library sorts tensors of one type.
std::vector<SavedTensor> all_saved(const Graph& graph, const std::vector<ParameterParts>& parameters,
                                   std::optional<StoredType> type) {
  std::vector<SavedTensor> all;
  std::vector<SavedPart> blocks;  // behind the first of a table
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t part = 0; part < parameters[i].parts.size(); ++part) {
      if (parameters[i].parts[part].stored_row > 0) {
        blocks.push_back({i, part});
        continue;
      }
      SavedTensor saved{{}, {{i, part}}};
      saved.tensor.name = parameters[i].parts[part].name;
      saved.tensor.shape = parameters[i].parts[part].shape;
      saved.tensor.type = type.value_or(usual_type(graph, parameters[i]));
      saved.tensor.bytes = size_of(saved.tensor.type);
      for (const std::int64_t extent : saved.tensor.shape) saved.tensor.bytes *= static_cast<Bytes>(extent);
      all.push_back(std::move(saved));
    }
  }
  std::sort(all.begin(), all.end(),
            [](const SavedTensor& a, const SavedTensor& b) { return a.tensor.name < b.tensor.name; });
  for (const SavedPart& block : blocks) {
    const std::string& name = parameters[block.parameter].parts[block.part].name;
    const auto table = std::lower_bound(
        all.begin(), all.end(), name,
        [](const SavedTensor& saved, const std::string& than) { return saved.tensor.name < than; });
    table->parts.push_back(block);
  }
  return all;
}

void require_whole(const ModelDescription& model, const std::vector<SavedTensor>& all) {
  const std::string_view last = files_of(*model.family).whole_by;
  const bool there = std::any_of(all.begin(), all.end(),
                                 [&](const SavedTensor& saved) { return saved.tensor.name == last; });
  if (!there)
    throw InvalidInput(fmt::format(
        "the graph has no parameter for '{}', which the model's files hold; build the whole model", last));
}

// Returns the places and the bytes of all tensors.
std::pair<std::map<std::string, std::string>, Bytes> contents_of(const std::vector<SavedFile>& files) {
  std::map<std::string, std::string> places;
  Bytes total = 0;
  for (const SavedFile& file : files) {
    for (const SavedTensor& saved : file.tensors) {
      places[saved.tensor.name] = file.name;
      total += saved.tensor.bytes;
    }
  }
  return {std::move(places), total};
}

// Cuts the tensors into files: consecutive tensors, as many as fit, but at least one.
std::vector<SavedFile> cut_into_files(const std::vector<SavedTensor>& all, Bytes most) {
  std::vector<SavedFile> files;
  Bytes filled = 0;
  for (const SavedTensor& saved : all) {
    if (files.empty() || filled + saved.tensor.bytes > most) {
      files.emplace_back().metadata = {{"format", "pt"}};  // transformers refuses files without it
      filled = 0;
    }
    filled += saved.tensor.bytes;
    files.back().tensors.push_back(saved);
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    files[i].name = files.size() == 1 ? "model.safetensors"
                                      : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  return files;
}

// Places the tensors where a source has them.
class SourceLayout {
 public:
  SourceLayout(const TensorFiles& source, const ModelDescription& model, std::optional<StoredType> type)
      : source_(source), model_(model), type_(type) {}

  // Finds what each tensor of the source is, and gives `all` the source's types. Returns whether the source's
  // names and files serve the export: not if a parameter has to be added, whose usual name might not go with
  // theirs, nor if names begin with a wrapper that no one else knows.
  bool serves(std::vector<SavedTensor>& all) {
    match(all);
    for (SavedTensor& saved : all) {
      const auto found = types_.find(saved.tensor.name);
      if (type_ || found == types_.end()) continue;
      saved.tensor.type = found->second;
      add_bytes(saved.tensor);
    }
    const std::vector<std::string_view> names = source_.names();
    return types_.size() == all.size() &&
           std::none_of(names.begin(), names.end(), [&](std::string_view name) { return is_wrapped(name); });
  }

  // Requires a source that serves.
  SaveLayout run() const {
    SaveLayout layout;
    for (const TensorFiles::File& file : source_.files()) layout.files.push_back(placed(file));
    if (source_.index().empty()) layout.files.front().name = "model.safetensors";
    bool as_read = true;
    for (std::size_t i = 0; i < layout.files.size(); ++i) as_read = finish(layout.files[i], i) && as_read;
    if (source_.index().empty()) return layout;
    layout.index = source_.index();
    if (as_read) return layout;
    const auto [places, total] = contents_of(layout.files);
    layout.index = changed_safetensors_index(source_.index(), places, total);
    return layout;
  }

 private:
  // Returns whether the tensor's name begins with more than the prefix of the family's usual names.
  bool is_wrapped(std::string_view name) const {
    const std::string& whole = source_.find(name)->name;
    const std::string_view before = std::string_view(whole).substr(0, whole.size() - name.size());
    return !before.empty() && before != files_of(*model_.family).prefix;
  }

  // Finds what each tensor of the source is.
  void match(const std::vector<SavedTensor>& all) {
    std::map<std::string_view, const SavedTensor*> by_name;
    for (const SavedTensor& saved : all) {
      by_name[saved.tensor.name] = &saved;
      for (const std::string& name : accepted_names(model_, saved.tensor.name)) {
        const StoredTensor* found = source_.find(name);
        if (found == nullptr) continue;
        places_[found] = saved;
        types_[saved.tensor.name] = found->type;
        break;
      }
    }
    for (const std::string_view name : source_.names()) {
      const StoredTensor* tensor = source_.find(name);
      if (places_.contains(tensor)) continue;
      const ExtraTensor extra = extra_tensor(model_, name);
      const auto tied = by_name.find(extra.tied_to);
      if (extra.what == Extra::none || (extra.what == Extra::tied && tied == by_name.end()))
        refuse(*tensor, "has no place in the model");
      places_[tensor] = extra.what == Extra::tied ? *tied->second : SavedTensor{{}, {}, tensor};
    }
  }

  SavedFile placed(const TensorFiles::File& file) const {
    SavedFile result;
    result.name = file.name;
    result.header = file.header;
    result.metadata = file.header->metadata;
    for (const StoredTensor& stored : file.header->tensors) {
      SavedTensor saved = places_.at(&stored);
      if (saved.copied == nullptr && !is_real(stored.type))
        refuse(stored, fmt::format("is of type {}, which no parameter has", to_string(stored.type)));
      if (saved.copied != nullptr) saved.tensor.shape = stored.shape;
      saved.tensor.name = stored.name;
      saved.tensor.type = saved.copied == nullptr ? type_.value_or(stored.type) : stored.type;
      if (saved.tensor.type != stored.type || saved.tensor.shape != stored.shape) result.header = nullptr;
      add_bytes(saved.tensor);
      result.tensors.push_back(std::move(saved));
    }
    return result;
  }

  // Returns whether the file is as in the source. A new header has larger elements first, so that every
  // tensor is aligned.
  bool finish(SavedFile& file, std::size_t number) const {
    if (file.header != nullptr) {
      file.beginning = source_.beginning(number);
      return true;
    }
    std::stable_sort(file.tensors.begin(), file.tensors.end(),
                     [](const SavedTensor& a, const SavedTensor& b) {
                       return size_of(a.tensor.type) > size_of(b.tensor.type);
                     });
    return false;
  }

  static void add_bytes(StoredTensor& tensor) {
    tensor.bytes = size_of(tensor.type);
    for (const std::int64_t extent : tensor.shape) tensor.bytes *= static_cast<Bytes>(extent);
  }

  [[noreturn]] static void refuse(const StoredTensor& tensor, const std::string& why) {
    throw InvalidInput(fmt::format(
        "model files: tensor {} {}; save with the files that the model was read from, or without any",
        in_quotes(tensor.name), why));
  }

  const TensorFiles& source_;
  const ModelDescription& model_;
  std::optional<StoredType> type_;
  std::map<const StoredTensor*, SavedTensor> places_;  // of the source's tensors
  std::map<std::string, StoredType> types_;            // in the source, by usual name
};

}  // namespace

SaveLayout save_layout(const ModelDescription& model, const Graph& graph,
                       const std::vector<ParameterParts>& parameters, const SaveOptions& options) {
  const std::optional<StoredType> type = type_asked_for(options);
  std::vector<SavedTensor> all = all_saved(graph, parameters, type);
  require_whole(model, all);
  SaveLayout layout;
  layout.type_word = options.source != nullptr ? type : all.front().tensor.type;
  if (options.source != nullptr) {
    SourceLayout source(*options.source, model, type);
    if (source.serves(all)) {
      layout = source.run();
      layout.type_word = type;
      return layout;
    }
  }
  layout.files = cut_into_files(all, options.shard_bytes);
  if (layout.files.size() == 1) return layout;
  const auto [places, total] = contents_of(layout.files);
  layout.index = safetensors_index(places, total);
  return layout;
}

}  // namespace stowage
