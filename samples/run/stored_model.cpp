#include "samples/run/stored_model.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "samples/options/initial_sizes.h"
#include "samples/run/checkpoints.h"
#include "samples/run/model_fields.h"
#include "src/checkpoint/state_json.h"
#include "src/model_files/files.h"
#include "src/models/require_valid.h"
#include "src/models/table_blocks.h"
#include "stowage/error.h"
#include "stowage/safetensors.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

std::string field_of(const CheckpointState& state, const std::string& folder, const std::string& field) {
  const auto found = state.configuration.find(field);
  if (found == state.configuration.end())
    throw InvalidInput(
        fmt::format("{}/state.json: 'configuration.{}' is missing: it is no checkpoint of "
                    "train_gpt",
                    folder, field));
  return found->second;
}

template <class Number>
Number number_of(const CheckpointState& state, const std::string& folder, const std::string& field,
                 Number least, Number most) {
  const std::string text = field_of(state, folder, field);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most)
    return value;
  throw InvalidInput(fmt::format("{}/state.json: 'configuration.{}' is \"{}\": give a number from {} to {}",
                                 folder, field, text, least, most));
}

DataType work_type_of(const CheckpointState& state, const std::string& folder) {
  const std::string name = field_of(state, folder, "model.type");
  for (const DataType type : {DataType::bf16, DataType::f16})
    if (name == to_string(type)) return type;
  return DataType::f32;
}

// Keeps a graph's parameters in host memory, and drops all other tensors of a checkpoint.
class Store {
 public:
  explicit Store(const Graph& graph) : graph_(graph), values_(graph.tensors.size()) {}

  void fill(TensorId id, const StateAccess::FillPiece& piece) {
    std::vector<std::byte>& value = value_of(id);
    piece(0, value);
  }
  void write(TensorId id, Bytes offset, std::span<const std::byte> from) {
    std::memcpy(value_of(id).data() + offset, from.data(), from.size());
  }
  void read(TensorId id, Bytes offset, std::span<std::byte> into) {
    std::memcpy(into.data(), value_of(id).data() + offset, into.size());
  }

  std::map<std::string, std::vector<std::byte>> take() {
    std::map<std::string, std::vector<std::byte>> parameters;
    for (TensorId id = 0; id < values_.size(); ++id) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.kind != TensorKind::parameter) continue;
      std::vector<std::byte> value = std::move(value_of(id));
      if (size_of(tensor.type) == 2) value = widened(tensor.type, value);
      std::vector<std::byte>& all = parameters[std::string(name_of_table(tensor.name))];
      all.empty() ? all.swap(value) : static_cast<void>(all.insert(all.end(), value.begin(), value.end()));
    }
    return parameters;
  }

 private:
  std::vector<std::byte>& value_of(TensorId id) {
    const bool kept = graph_.tensor(id).kind == TensorKind::parameter;
    std::vector<std::byte>& value = kept ? values_[id] : passing_;
    value.resize(graph_.tensor(id).bytes());
    return value;
  }

  const Graph& graph_;
  std::vector<std::vector<std::byte>> values_;
  std::vector<std::byte> passing_;
};

Graph training_graph(const StoredModel& model, DataType type, Moments moments = Moments::f32) {
  GraphBuilder builder(type);
  return builder.finish(model.family->build(builder, model.sizes).loss, AdamW{.moments = moments});
}

StoredModel from_files(const Options& options) {
  return about_initial(options, [&] {
    StoredModel model;
    model.family = options.family;
    model.sizes = options.model;
    model.sizes.batch = 1;
    const Graph graph = training_graph(model, DataType::f32);
    const TensorFiles files(options.init);
    // Checks before memory is taken for the sizes in config.json.
    check_model(files, *options.initial, graph);
    Store store(graph);
    load_model(files, *options.initial, graph, access_to(store));
    model.parameters = store.take();
    return model;
  });
}

StoredModel from_checkpoint(const Checkpoint& checkpoint) {
  const CheckpointState& state = checkpoint.state();
  StoredModel model;
  model.family = &family_in(state, checkpoint.folder());
  model.sizes = sizes_in(state, checkpoint.folder());
  model.knows_tokenizer = true;
  if (const auto found = state.configuration.find("data.tokenizer"); found != state.configuration.end())
    model.tokenizer = found->second;
  const Graph graph =
      training_graph(model, work_type_of(state, checkpoint.folder()), moments_in(state, checkpoint.folder()));
  checkpoint.require_graph(graph);
  Store store(graph);
  checkpoint.load(graph, state_access(store));
  model.parameters = store.take();
  return model;
}

// Returns the folder of the checkpoint that --resume means.
std::string resumed_folder(const Options& options) {
  if (options.resume_from.empty()) {
    const auto there = list_checkpoints(options.checkpoint_folder);
    if (there.empty())
      throw InvalidInput(options.checkpoint_folder +
                         ": there is no checkpoint in it, and --steps 0 makes none");
    return there.front().path;
  }
  std::error_code error;
  if (!std::filesystem::exists(options.resume_from + "/state.json", error))
    checkpoint_at(options.resume_from);  // throws, and says what is there instead
  return options.resume_from;
}

std::optional<Checkpoint> checkpoint_of(const Options& options) {
  if (!options.resume_from.empty()) return checkpoint_at(options.resume_from);
  return open_newest_checkpoint(options.checkpoint_folder);
}

}  // namespace

std::vector<std::byte> widened(DataType type, std::span<const std::byte> narrow) {
  std::vector<std::byte> wide(2 * narrow.size());
  const auto each = [&](auto element) {
    for (std::size_t i = 0; i < narrow.size(); i += sizeof element) {
      std::memcpy(&element, narrow.data() + i, sizeof element);
      const auto value = static_cast<float>(element);
      std::memcpy(wide.data() + 2 * i, &value, sizeof value);
    }
  };
  type == DataType::bf16 ? each(Bfloat16{}) : each(Float16{});
  return wide;
}

const ModelFamily& family_in(const CheckpointState& state, const std::string& folder) {
  const std::string name = field_of(state, folder, "model.kind");
  const ModelFamily* family = find_model_family(name);
  if (family != nullptr && family->generates) return *family;
  throw InvalidInput(
      fmt::format("{}/state.json: 'configuration.model.kind' is \"{}\", which writes no text; give a "
                  "checkpoint of train_gpt",
                  folder, name));
}

ModelConfig sizes_in(const CheckpointState& state, const std::string& folder) {
  const auto size = [&](const char* field, std::int64_t most = most_of_others) {
    return number_of<std::int64_t>(state, folder, field, 1, most);
  };
  ModelConfig sizes;
  sizes.layers = size("model.layers", most_layers);
  sizes.width = size("model.width", most_width);
  sizes.heads = size("model.heads");
  sizes.vocabulary = size("model.vocabulary");
  sizes.padded_vocabulary = size("model.padded_vocabulary");
  sizes.sequence = size("model.sequence");
  sizes.epsilon = number_of<double>(state, folder, "model.epsilon", 0, 1);
  sizes.batch = 1;
  take_family_fields(state.configuration, folder + "/state.json", sizes);
  return sizes;
}

Moments moments_in(const CheckpointState& state, const std::string& folder) {
  const auto found = state.configuration.find(moments_field);
  if (found == state.configuration.end()) return Moments::f32;
  if (const auto moments = moments_from(found->second)) return *moments;
  throw InvalidInput(
      fmt::format("{}/state.json: 'configuration.{}' is \"{}\", and moments are f32, bf16 or 8bit", folder,
                  moments_field, found->second));
}

void take_stored_model(Options& options) {
  with_prefix("--resume ", [&] {
    const std::string folder = resumed_folder(options);
    const std::string file = folder + "/state.json";
    const CheckpointState state =
        state_from_json(read_small_file(file, largest_state_json, "name a whole checkpoint"), file);
    const ModelConfig given = options.model;
    const ModelConfig stored = sizes_in(state, folder);
    options.type = work_type_of(state, folder);
    options.stored_shards = state.configuration.contains("data.shards");
    options.model.sequence = stored.sequence;
    if (options.initial) return;
    options.family = &family_in(state, folder);
    ModelConfig& model = options.model = stored;
    model.batch = given.batch;
    model.micro_batches = given.micro_batches;
    model.gradient_groups = given.gradient_groups;
    const auto share = [&](const char* field) { return number_of<double>(state, folder, field, 0, 1); };
    model.embedding_dropout = share("model.embedding_dropout");
    model.attention_dropout = share("model.attention_dropout");
    model.residual_dropout = share("model.residual_dropout");
  });
}

StoredModel read_stored_model(const Options& options) {
  if (!options.init.empty()) return from_files(options);
  return with_prefix(options.resume_from.empty() ? "--checkpoint " : "--resume ", [&] {
    const std::optional<Checkpoint> checkpoint = checkpoint_of(options);
    if (!checkpoint) throw InvalidInput(options.checkpoint_folder + ": there is no checkpoint in it");
    return from_checkpoint(*checkpoint);
  });
}

}  // namespace stowage::samples
