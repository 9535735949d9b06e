#include "samples/run/stored_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>

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

// Writes the parameters of a checkpoint's graph, which may have tables in blocks, to whole ones, and drops
// all other tensors.
class Store {
 public:
  Store(const Graph& graph, ModelWeights& weights) {
    std::map<std::string_view, Bytes> filled;  // bytes of each table's blocks so far
    for (const Tensor& tensor : graph.tensors) {
      const bool kept = tensor.kind == TensorKind::parameter;
      const std::string_view table = name_of_table(tensor.name);
      places_.push_back(kept ? weights.value(table).subspan(filled[table], tensor.bytes())
                             : std::span<std::byte>());
      if (kept) filled[table] += tensor.bytes();
      sizes_.push_back(tensor.bytes());
    }
  }

  void fill(TensorId id, const StateAccess::FillPiece& piece) {
    if (!places_[id].empty()) return piece(0, places_[id]);
    constexpr Bytes at_once = 1_MiB;
    passing_.resize(at_once);
    for (Bytes offset = 0; offset < sizes_[id]; offset += at_once)
      piece(offset, std::span(passing_).first(std::min(at_once, sizes_[id] - offset)));
  }
  void read(TensorId id, Bytes offset, std::span<std::byte> into) {
    if (!places_[id].empty()) std::memcpy(into.data(), places_[id].data() + offset, into.size());
  }

 private:
  std::vector<std::span<std::byte>> places_;  // by tensor; empty: it is dropped
  std::vector<Bytes> sizes_;
  std::vector<std::byte> passing_;
};

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
  if (!options.init.empty()) return {};
  return with_prefix(options.resume_from.empty() ? "--checkpoint " : "--resume ", [&] {
    std::optional<Checkpoint> found = options.resume_from.empty()
                                          ? open_newest_checkpoint(options.checkpoint_folder)
                                          : checkpoint_at(options.resume_from);
    if (!found) throw InvalidInput(options.checkpoint_folder + ": there is no checkpoint in it");
    return found;
  });
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

StoredModel::StoredModel(const Options& options)
    : options_(options),
      checkpoint_(checkpoint_of(options)),
      family_(options.family),
      sizes_(options.model),
      type_(options.type) {
  sizes_.batch = 1;
  if (!checkpoint_) return;
  const std::string& folder = checkpoint_->folder();
  const CheckpointState& state = checkpoint_->state();
  family_ = &family_in(state, folder);
  sizes_ = sizes_in(state, folder);
  type_ = work_type_of(state, folder);
}

std::optional<std::string> StoredModel::tokenizer() const {
  if (!checkpoint_) return {};
  const auto& configuration = checkpoint_->state().configuration;
  const auto found = configuration.find("data.tokenizer");
  return found != configuration.end() ? found->second : "";
}

void StoredModel::load(ModelWeights& weights) const {
  if (!checkpoint_) {
    about_initial(options_, [&] {
      const TensorFiles files(options_.init);
      load_model(files, *options_.initial, weights.graph(), access_to(weights));
    });
    return;
  }
  const std::string& folder = checkpoint_->folder();
  GraphBuilder builder(type_);
  const Graph graph = builder.finish(family_->build(builder, sizes_).loss,
                                     AdamW{.moments = moments_in(checkpoint_->state(), folder)});
  checkpoint_->require_graph(graph);
  Store store(graph, weights);
  checkpoint_->load(graph, state_access(store));
}

}  // namespace stowage::samples
