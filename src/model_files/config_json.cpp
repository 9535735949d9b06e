// config.json: reads every field that changes the computation, and passes over other fields.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "src/graph/json_field.h"
#include "src/model_files/files.h"
#include "src/models/require_valid.h"
#include "stowage/error.h"
#include "stowage/model_files.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* config_remedy =
    "give the config.json of a GPT-2 or BERT model as transformers writes it";
constexpr Bytes most_config_bytes = 4_MiB;

// Names of the fields in one kind of model.
struct FieldNames {
  const char* layers;
  const char* width;
  const char* heads;
  const char* positions;
  const char* epsilon;
  const char* inner;
  const char* activation;
  const char* gelu;
  const char* embedding_dropout;
  const char* attention_dropout;
  const char* residual_dropout;
};
constexpr FieldNames gpt_fields = {"n_layer",
                                   "n_embd",
                                   "n_head",
                                   "n_positions",
                                   "layer_norm_epsilon",
                                   "n_inner",
                                   "activation_function",
                                   "gelu_new",
                                   "embd_pdrop",
                                   "attn_pdrop",
                                   "resid_pdrop"};
constexpr FieldNames bert_fields = {"num_hidden_layers",   "hidden_size",
                                    "num_attention_heads", "max_position_embeddings",
                                    "layer_norm_eps",      "intermediate_size",
                                    "hidden_act",          "gelu",
                                    "hidden_dropout_prob", "attention_probs_dropout_prob",
                                    "hidden_dropout_prob"};

const FieldNames& fields_of(ModelKind kind) { return kind == ModelKind::gpt2 ? gpt_fields : bert_fields; }

// A field with one supported value, which is also transformers' default.
struct FixedField {
  const char* name;
  json value;
};
std::vector<FixedField> fixed_fields(ModelKind kind) {
  const FieldNames& names = fields_of(kind);
  std::vector<FixedField> fixed = {{"tie_word_embeddings", true},
                                   {names.activation, names.gelu},
                                   {"is_decoder", false},
                                   {"add_cross_attention", false},
                                   {"is_encoder_decoder", false}};
  if (kind == ModelKind::gpt2) {
    fixed.push_back({"scale_attn_weights", true});
    fixed.push_back({"scale_attn_by_inverse_layer_idx", false});
  } else {
    fixed.push_back({"position_embedding_type", "absolute"});
    fixed.push_back({"type_vocab_size", 2});
  }
  return fixed;
}

class ConfigReader {
 public:
  ConfigReader(const json& config, const JsonSource& source)
      : source_(source), config_(config), root_(config, source) {}

  ModelDescription read() const {
    ModelDescription model;
    model.kind = kind();
    const FieldNames& names = fields_of(model.kind);
    model.layers = size(names.layers, most_layers);
    model.width = size(names.width, most_width);
    model.heads = size(names.heads);
    model.vocabulary = size("vocab_size");
    model.positions = size(names.positions);
    model.embedding_dropout = probability(names.embedding_dropout);
    model.attention_dropout = probability(names.attention_dropout);
    model.residual_dropout = probability(names.residual_dropout);
    model.epsilon = epsilon(names.epsilon, model.kind == ModelKind::gpt2 ? 1e-5 : 1e-12);
    model.begin_token = token("bos_token_id");
    model.end_token = token("eos_token_id");
    model.padding_token = token("pad_token_id");
    if (model.width % model.heads != 0)
      root_.member(names.width)
          .refuse(fmt::format("is {}, which {} {} does not divide", model.width, names.heads, model.heads));
    require_inner(names.inner, model);
    for (const FixedField& field : fixed_fields(model.kind)) require(field);
    return model;
  }

 private:
  ModelKind kind() const {
    root_.members(std::size_t{1} << 16U);  // an object
    if (!root_.has("model_type"))
      if (const auto found = kind_of_architecture()) return *found;
    const JsonField field = root_.member("model_type");
    const std::string word = field.text();
    if (word == "gpt2") return ModelKind::gpt2;
    if (word == "bert") return ModelKind::bert;
    field.refuse(fmt::format("is {}; gpt2 and bert are supported", in_quotes(word)));
  }

  // Returns the kind by the architecture: transformers wrote no model_type before 2.3, of 2019.
  std::optional<ModelKind> kind_of_architecture() const {
    const auto found = config_.find("architectures");
    if (found != config_.end() && found->is_array() && found->size() == 1 && found->front().is_string()) {
      const auto name = found->front().get<std::string>();
      if (name.starts_with("GPT2")) return ModelKind::gpt2;
      if (name.starts_with("Bert")) return ModelKind::bert;
      return {};
    }
    if (root_.has("n_embd") && root_.has("n_ctx")) return ModelKind::gpt2;
    if (root_.has("hidden_size") && root_.has("type_vocab_size")) return ModelKind::bert;
    return {};
  }

  std::int64_t size(const char* name, std::int64_t most = most_of_others) const {
    const JsonField field = root_.member(name);
    const std::int64_t value = field.integer();
    if (value < 1 || value > most) field.refuse(fmt::format("is {}; 1 to {} is supported", value, most));
    return value;
  }

  double probability(const char* name) const {
    const auto field = root_.optional_member(name);
    if (!field) return 0.1;
    const double value = field->number();
    if (value < 0 || value >= 1)
      field->refuse(fmt::format("is {}; a probability from 0 to below 1 is supported", value));
    return value;
  }

  double epsilon(const char* name, double usual) const {
    const auto field = root_.optional_member(name);
    if (!field) return usual;
    const double value = field->number();
    if (!(value > 0 && value < 1))
      field->refuse(fmt::format("is {}; a number between 0 and 1 is supported", value));
    return value;
  }

  std::optional<std::int64_t> token(const char* name) const {
    const auto found = config_.find(name);
    // A model with several end tokens has a list, which does not matter here.
    if (found == config_.end() || !found->is_number_integer()) return {};
    return root_.member(name).integer();
  }

  void require_inner(const char* name, const ModelDescription& model) const {
    const auto found = config_.find(name);
    const bool usual = model.kind == ModelKind::gpt2 && (found == config_.end() || found->is_null());
    if (usual) return;
    const JsonField field = root_.member(name);
    if (field.integer() != 4 * model.width)
      field.refuse(fmt::format("is {}; 4 times {}, {}, is supported", field.integer(),
                               fields_of(model.kind).width, 4 * model.width));
  }

  void require(const FixedField& field) const {
    const auto found = config_.find(field.name);
    if (found == config_.end() || *found == field.value) return;
    root_.member(field.name)
        .refuse(fmt::format("is {}; {} is supported",
                            found->is_string() ? in_quotes(found->get<std::string>())
                                               : found->dump(-1, ' ', true).substr(0, 200),
                            field.value.dump()));
  }

  const JsonSource& source_;
  const json& config_;
  JsonField root_;
};

// Replaces NaN, Infinity and -Infinity, which Python writes and JSON lacks, by null, which no field that is
// read may be.
std::string without_non_finite(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (!in_string) {
      const auto is_word = [&](std::string_view word) { return text.substr(i).starts_with(word); };
      constexpr std::array<std::string_view, 3> words = {"NaN", "Infinity", "-Infinity"};
      const auto word = std::find_if(words.begin(), words.end(), is_word);
      if (word != words.end()) {
        result += "null";
        i += word->size();
        continue;
      }
    }
    if (text[i] == '"') in_string = !in_string;
    const std::size_t length = in_string && text[i] == '\\' ? 2 : 1;
    result += text.substr(i, length);
    i += length;
  }
  return result;
}

void put_token(json& config, const char* name, const std::optional<std::int64_t>& token) {
  config[name] = token ? json(*token) : json();
}

void require_kind(const ModelDescription& model, ModelKind kind, const char* word) {
  if (model.kind != kind)
    throw InvalidInput(
        fmt::format("config.json: 'model_type' is {}, and this is for {}; give a model of that type",
                    model.kind == ModelKind::gpt2 ? "gpt2" : "bert", word));
}

// Returns nullopt for the probability `most`, which then stands for all.
std::optional<double> unless(double most, double probability) {
  return probability == most ? std::optional<double>() : probability;
}

template <class Config>
Config sizes_of(const ModelDescription& model) {
  Config config;
  config.layers = model.layers;
  config.width = model.width;
  config.heads = model.heads;
  config.vocabulary = model.vocabulary;
  config.sequence = model.positions;
  config.dropout = model.embedding_dropout;
  config.attention_dropout = unless(config.dropout, model.attention_dropout);
  config.epsilon = model.epsilon;
  return config;
}

template <class Config>
ModelDescription description_of(const Config& config, ModelKind kind) {
  ModelDescription model;
  model.kind = kind;
  model.layers = config.layers;
  model.width = config.width;
  model.heads = config.heads;
  model.vocabulary = config.vocabulary;
  model.positions = config.sequence;
  model.embedding_dropout = model.residual_dropout = config.dropout;
  model.attention_dropout = config.attention_dropout.value_or(config.dropout);
  model.epsilon = config.epsilon;
  return model;
}

}  // namespace

ModelDescription model_description_from_json(std::string_view text, std::string_view file) {
  const JsonSource source{std::string(file), config_remedy, "the whole file"};
  const json config = parse_json(without_non_finite(text), source);
  return ConfigReader(config, source).read();
}

std::string to_json(const ModelDescription& model) {
  const bool gpt = model.kind == ModelKind::gpt2;
  const FieldNames& names = fields_of(model.kind);
  json config = {{"architectures", json::array({gpt ? "GPT2LMHeadModel" : "BertForPreTraining"})},
                 {"model_type", gpt ? "gpt2" : "bert"},
                 {"initializer_range", 0.02},
                 {"vocab_size", model.vocabulary},
                 {names.layers, model.layers},
                 {names.width, model.width},
                 {names.heads, model.heads},
                 {names.positions, model.positions},
                 {names.embedding_dropout, model.embedding_dropout},
                 {names.attention_dropout, model.attention_dropout},
                 {names.residual_dropout, model.residual_dropout},
                 {names.epsilon, model.epsilon}};
  config[names.inner] = gpt ? json() : json(4 * model.width);
  for (const FixedField& field : fixed_fields(model.kind)) config[field.name] = field.value;
  put_token(config, "bos_token_id", model.begin_token);
  put_token(config, "eos_token_id", model.end_token);
  if (gpt || model.padding_token) put_token(config, "pad_token_id", model.padding_token);
  return config.dump(2) + "\n";
}

ModelDescription read_model_description(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw InvalidInput(
        fmt::format("{} is not there; give a folder with config.json, or a file beside it", path));
  const fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  const std::string file = (folder / "config.json").string();
  return model_description_from_json(read_small_file(file, most_config_bytes, config_remedy), file);
}

GptConfig gpt_config(const ModelDescription& model) {
  require_kind(model, ModelKind::gpt2, "GPT-2");
  GptConfig config = sizes_of<GptConfig>(model);
  config.residual_dropout = unless(config.dropout, model.residual_dropout);
  return config;
}

BertConfig bert_config(const ModelDescription& model) {
  require_kind(model, ModelKind::bert, "BERT");
  BertConfig config = sizes_of<BertConfig>(model);
  config.pretraining = true;
  return config;
}

ModelDescription describe(const GptConfig& config) {
  ModelDescription model = description_of(config, ModelKind::gpt2);
  model.embedding_dropout = config.embedding_dropout.value_or(config.dropout);
  model.residual_dropout = config.residual_dropout.value_or(config.dropout);
  return model;
}
ModelDescription describe(const BertConfig& config) { return description_of(config, ModelKind::bert); }

}  // namespace stowage
