// config.json: reads every field that changes the computation, and passes over other fields.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "src/graph/json_field.h"
#include "src/model_files/config_json.h"
#include "src/model_files/family_files.h"
#include "src/model_files/files.h"
#include "src/models/require_valid.h"
#include "stowage/error.h"
#include "stowage/model_files.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Bytes most_config_bytes = 4_MiB;
// JSON text that no field which is read may be.
constexpr std::string_view no_value = R"("not finite")";

const std::string& config_remedy() {
  static const std::string remedy =
      fmt::format("give the config.json of a {} model as transformers writes it", titles_of_families());
  return remedy;
}

class ConfigReader {
 public:
  ConfigReader(const json& config, const JsonSource& source)
      : source_(source), config_(config), root_(config, source) {}

  ModelDescription read() const {
    const FamilyFiles& files = family_files();
    const ConfigFields& names = files.fields;
    ModelDescription model{.family = files.family, .config = files.family->defaults};
    ModelConfig& config = model.config;
    config.layers = size(names.layers, most_layers);
    config.width = size(names.width, most_width);
    config.heads = size(names.heads);
    config.vocabulary = size("vocab_size");
    config.sequence = size(names.positions);
    read_dropouts(files, config);
    config.epsilon = epsilon(names.epsilon, files.usual_epsilon);
    model.begin_token = token("bos_token_id");
    model.end_token = token("eos_token_id");
    model.padding_token = token("pad_token_id");
    if (files.read_more != nullptr) files.read_more(root_, config);
    if (config.head_width == 0 && config.width % config.heads != 0)
      root_.member(names.width)
          .refuse(fmt::format("is {}, which {} {} does not divide", config.width, names.heads, config.heads));
    if (names.inner != nullptr) require_inner(files, config);
    for (const FixedField& field : files.fixed) require(field);
    return model;
  }

 private:
  const FamilyFiles& family_files() const {
    root_.members(std::size_t{1} << 16U);  // an object
    if (!root_.has("model_type"))
      if (const FamilyFiles* found = files_of_architecture()) return *found;
    const JsonField field = root_.member("model_type");
    const std::string word = field.text();
    std::string supported;
    for (const FamilyFiles* files : all_family_files()) {
      if (files->model_type == word) return *files;
      supported += fmt::format("{}{}", supported.empty() ? "" : ", ", files->model_type);
    }
    field.refuse(fmt::format("is {}; supported are {}", in_quotes(word), supported));
  }

  // Returns the family by the architecture, or null: transformers wrote no model_type before 2.3, of 2019.
  const FamilyFiles* files_of_architecture() const {
    const auto found = config_.find("architectures");
    const bool named =
        found != config_.end() && found->is_array() && found->size() == 1 && found->front().is_string();
    for (const FamilyFiles* files : all_family_files()) {
      const bool told =
          named ? found->front().get<std::string>().starts_with(files->class_prefix)
                : !files->tells.empty() && std::all_of(files->tells.begin(), files->tells.end(),
                                                       [&](const char* field) { return root_.has(field); });
      if (told) return files;
    }
    return nullptr;
  }

  void read_dropouts(const FamilyFiles& files, ModelConfig& config) const {
    const auto probability = [&](const char* name) {
      return name == nullptr ? config.dropout : this->probability(name, files.usual_dropout);
    };
    const ConfigFields& names = files.fields;
    config.dropout = 0;
    config.dropout = probability(names.embedding_dropout);
    // Returns nullopt for the probability that stands for all.
    const auto unless_usual = [&](double probability) {
      return probability == config.dropout ? std::optional<double>() : probability;
    };
    config.attention_dropout = unless_usual(probability(names.attention_dropout));
    config.residual_dropout = unless_usual(probability(names.residual_dropout));
  }

  std::int64_t size(const char* name, std::int64_t most = most_of_others) const {
    return size_in_config(root_.member(name), most);
  }

  double probability(const char* name, double usual) const {
    const auto field = root_.optional_member(name);
    if (!field) return usual;
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

  void require_inner(const FamilyFiles& files, const ModelConfig& config) const {
    const char* name = files.fields.inner;
    const auto found = config_.find(name);
    if (files.inner_may_be_null && (found == config_.end() || found->is_null())) return;
    const JsonField field = root_.member(name);
    if (field.integer() != 4 * config.width)
      field.refuse(fmt::format("is {}; 4 times {}, {}, is supported", field.integer(), files.fields.width,
                               4 * config.width));
  }

  void require(const FixedField& field) const {
    const auto found = config_.find(field.name);
    if (found == config_.end() || *found == json::parse(field.value)) return;
    root_.member(field.name)
        .refuse(fmt::format("is {}; {} is supported",
                            found->is_string() ? in_quotes(found->get<std::string>())
                                               : found->dump(-1, ' ', true).substr(0, 200),
                            field.value));
  }

  const JsonSource& source_;
  const json& config_;
  JsonField root_;
};

// Replaces NaN, Infinity and -Infinity, which Python writes and JSON lacks.
std::string without_non_finite(std::string_view text, std::string_view replacement) {
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (!in_string) {
      const auto is_word = [&](std::string_view word) { return text.substr(i).starts_with(word); };
      constexpr std::array<std::string_view, 3> words = {"NaN", "Infinity", "-Infinity"};
      const auto word = std::find_if(words.begin(), words.end(), is_word);
      if (word != words.end()) {
        result += replacement;
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

// Throws InvalidInput for a model that the family's config.json cannot describe.
void require_describable(const ModelDescription& model) {
  const ModelConfig& usual = model.family->defaults;
  const auto require = [&](bool holds, const char* field) {
    if (!holds)
      throw InvalidInput(
          fmt::format("config.json: no {} has this `{}` (ModelConfig); describe another family",
                      model.family->title, field));
  };
  require(model.config.attention_bias == usual.attention_bias, "attention_bias");
  require(model.config.head_norms == usual.head_norms, "head_norms");
  require(model.config.tied || !model.family->learned_positions, "tied");
}

// Returns the fields of a config.json that is written anew.
json fields_of(const ModelDescription& model) {
  require_describable(model);
  const FamilyFiles& files = files_of(*model.family);
  const ConfigFields& names = files.fields;
  const ModelConfig& sizes = model.config;
  json config = {{"architectures", json::array({files.architecture})},
                 {"model_type", files.model_type},
                 {"initializer_range", 0.02},
                 {"vocab_size", sizes.vocabulary},
                 {names.layers, sizes.layers},
                 {names.width, sizes.width},
                 {names.heads, sizes.heads},
                 {names.positions, sizes.sequence},
                 {names.attention_dropout, sizes.attention_dropout.value_or(sizes.dropout)},
                 {names.epsilon, sizes.epsilon}};
  if (names.embedding_dropout != nullptr)
    config[names.embedding_dropout] = sizes.embedding_dropout.value_or(sizes.dropout);
  if (names.residual_dropout != nullptr)
    config[names.residual_dropout] = sizes.residual_dropout.value_or(sizes.dropout);
  if (names.inner != nullptr) config[names.inner] = files.inner_may_be_null ? json() : json(4 * sizes.width);
  for (const FixedField& field : files.fixed)
    if (field.written) config[field.name] = json::parse(field.value);
  put_token(config, "bos_token_id", model.begin_token);
  put_token(config, "eos_token_id", model.end_token);
  if (files.writes_absent_padding || model.padding_token)
    put_token(config, "pad_token_id", model.padding_token);
  if (files.write_more != nullptr) files.write_more(sizes, config);
  return config;
}

// Returns the name of the type in PyTorch, as config.json has it.
const char* torch_word(StoredType type) {
  if (type == StoredType::bf16) return "bfloat16";
  if (type == StoredType::f16) return "float16";
  return type == StoredType::f64 ? "float64" : "float32";
}

// Returns the names of the fields that `before` and `after` have differently. Joint fields are there
// together.
std::set<std::string> changed_fields(const FamilyFiles& files, const json& before, const json& after) {
  const auto differs = [&](const std::string& name) {
    return before.contains(name) != after.contains(name) ||
           (before.contains(name) && before[name] != after[name]);
  };
  std::set<std::string> changed;
  for (const json& fields : {before, after})
    for (const auto& [name, value] : fields.items())
      if (differs(name)) changed.insert(name);
  for (const std::vector<const char*>& joint : files.joint_fields)
    if (std::any_of(joint.begin(), joint.end(), differs)) changed.insert(joint.begin(), joint.end());
  return changed;
}

// Returns the model's source, changed where the model or the type that was written differs from it.
std::string changed_source(const ModelDescription& model, const ModelDescription& read,
                           std::optional<StoredType> written) {
  const json after = fields_of(model);
  const std::set<std::string> changed = changed_fields(files_of(*model.family), fields_of(read), after);
  auto config = nlohmann::ordered_json::parse(without_non_finite(model.source, "null"));
  bool same = changed.empty();
  for (const std::string& name : changed) {
    if (after.contains(name))
      config[name] = after[name];
    else
      config.erase(name);
  }
  for (const char* name : {"dtype", "torch_dtype"}) {
    if (!written || !config.contains(name) || config[name] == torch_word(*written)) continue;
    config[name] = torch_word(*written);
    same = false;
  }
  return same ? model.source : config.dump(2, ' ', true) + "\n";
}

}  // namespace

std::int64_t size_in_config(const JsonField& field, std::int64_t most) {
  const std::int64_t value = field.integer();
  if (value < 1 || value > most) field.refuse(fmt::format("is {}; 1 to {} is supported", value, most));
  return value;
}

ModelDescription model_description_from_json(std::string_view text, std::string_view file) {
  const JsonSource source{std::string(file), config_remedy(), "the whole file"};
  const json config = parse_json(without_non_finite(text, no_value), source);
  ModelDescription model = ConfigReader(config, source).read();
  model.source = text;
  return model;
}

std::string config_json(const ModelDescription& model, std::optional<StoredType> written) {
  const bool keeps_source = files_of(*model.family).keeps_source;
  if (keeps_source && !model.source.empty()) {
    const ModelDescription read = model_description_from_json(model.source, "the model's source");
    if (read.family == model.family) return changed_source(model, read, written);
  }
  json config = fields_of(model);
  if (written && keeps_source) config["torch_dtype"] = torch_word(*written);
  return config.dump(2) + "\n";
}

std::string to_json(const ModelDescription& model) { return config_json(model, {}); }

ModelDescription read_model_description(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw InvalidInput(
        fmt::format("{} is not there; give a folder with config.json, or a file beside it", path));
  const fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  if (fs::exists(folder / "adapter_config.json", error) && !fs::exists(folder / "config.json", error))
    throw InvalidInput(fmt::format(
        "{} holds an adapter, which is not read; merge it into its model, and give the whole model",
        folder.string()));
  const std::string file = (folder / "config.json").string();
  return model_description_from_json(read_small_file(file, most_config_bytes, config_remedy()), file);
}

}  // namespace stowage
