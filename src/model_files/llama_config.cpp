#include "src/model_files/llama_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "src/graph/json_field.h"
#include "src/model_files/config_json.h"
#include "src/models/require_valid.h"
#include "stowage/error.h"

namespace stowage {
namespace {

using nlohmann::json;
using nn::RotaryScaling;

constexpr std::int64_t keys_of_mistral = 8;  // values of absent fields in transformers' classes
constexpr std::int64_t keys_of_qwen = 32;
constexpr std::int64_t head_width_of_qwen3 = 128;
constexpr double usual_theta = 10000;
constexpr std::int64_t usual_window = 4096;
constexpr std::int64_t usual_first_window = 28;  // max_window_layers

// Returns nullopt for a field that is absent or null.
std::optional<JsonField> present(const JsonField& root, const char* name) {
  const auto field = root.optional_member(name);
  return field && !field->is_null() ? field : std::nullopt;
}

bool flag(const JsonField& root, const char* name, bool usual) {
  const auto field = root.optional_member(name);
  return field ? field->boolean() : usual;
}

// Refuses classes of the family that are no language models.
void require_language_model(const JsonField& root) {
  constexpr std::size_t most_architectures = 16;
  const auto field = present(root, "architectures");
  if (!field) return;
  field->list(most_architectures, [](const JsonField& item) {
    const std::string name = item.text();
    if (!name.ends_with("ForCausalLM"))
      item.refuse(fmt::format("is {}; a class that ends in ForCausalLM is supported", in_quotes(name)));
    return 0;
  });
}

// `usual_keys`: heads of keys if the field is absent; 0: as many as of queries.
void read_key_heads(const JsonField& root, std::int64_t usual_keys, ModelConfig& config) {
  const char* name = "num_key_value_heads";
  const bool absent = !root.has(name);
  const auto field = present(root, name);
  config.key_heads = absent && usual_keys > 0 ? usual_keys : config.heads;
  if (field) config.key_heads = size_in_config(*field, most_of_others);
  if (config.heads % config.key_heads == 0) return;
  (field ? *field : root.member("num_attention_heads"))
      .refuse(fmt::format("makes {} heads of queries and {} of keys and values, which do not divide them",
                          config.heads, config.key_heads));
}

// `usual_width`: width of a head if the field is absent; 0: the width divided by the heads.
void read_head_width(const JsonField& root, std::int64_t usual_width, ModelConfig& config) {
  const char* name = "head_dim";
  if (const auto field = present(root, name)) {
    config.head_width = size_in_config(*field, most_width);
    if (config.head_width % 2 != 0)
      field->refuse(fmt::format("is {}; an even number is supported", config.head_width));
    return;
  }
  config.head_width = root.has(name) ? 0 : usual_width;
  if (config.head_width > 0) return;
  const JsonField width = root.member("hidden_size");
  if (config.width % config.heads != 0)
    width.refuse(
        fmt::format("is {}, which num_attention_heads {} does not divide", config.width, config.heads));
  config.head_width = config.width / config.heads;
  if (config.head_width % 2 != 0)
    width.refuse(fmt::format("makes heads of {}; an even number is supported", config.head_width));
}

// Numbers of the scaling with their limits.
RotaryScaling llama3_scaling(const JsonField& field) {
  RotaryScaling scaling;
  scaling.factor = field.member("factor").number();
  scaling.low_frequency_factor = field.member("low_freq_factor").number();
  scaling.high_frequency_factor = field.member("high_freq_factor").number();
  scaling.original_positions =
      size_in_config(field.member("original_max_position_embeddings"), most_of_others);
  if (scaling.factor < 1)
    field.member("factor").refuse(fmt::format("is {}; at least 1 is supported", scaling.factor));
  if (scaling.low_frequency_factor <= 0)
    field.member("low_freq_factor")
        .refuse(fmt::format("is {}; a number above 0 is supported", scaling.low_frequency_factor));
  if (scaling.low_frequency_factor >= scaling.high_frequency_factor)
    field.member("high_freq_factor")
        .refuse(fmt::format("is {}; a number above low_freq_factor, {}, is supported",
                            scaling.high_frequency_factor, scaling.low_frequency_factor));
  return scaling;
}

// Reads the object of rope_scaling or rope_parameters. Its type is `rope_type`, and `type` in older files.
std::optional<RotaryScaling> scaling_of(const JsonField& field) {
  const auto older = field.optional_member("type");
  const JsonField type = !older || field.has("rope_type") ? field.member("rope_type") : *older;
  const std::string word = type.text();
  if (older && older->text() != word)
    older->refuse(fmt::format("is {}, and rope_type {}", in_quotes(older->text()), in_quotes(word)));
  if (word == "default") return {};
  if (word != "llama3")
    type.refuse(fmt::format("is {}; \"default\" and \"llama3\" are supported", in_quotes(word)));
  return llama3_scaling(field);
}

double theta_of(const JsonField& field) {
  const double theta = field.number();
  if (theta < 1) field.refuse(fmt::format("is {}; at least 1 is supported", theta));
  return theta;
}

// Takes the theta within the object of rope_scaling or rope_parameters, which must be the one that was read
// before it, if any.
void take_theta(const JsonField& object, std::optional<double>& theta) {
  if (const auto part = object.optional_member("partial_rotary_factor"); part && part->number() != 1)
    part->refuse(fmt::format("is {}; 1 is supported", part->number()));
  const auto field = object.optional_member("rope_theta");
  if (!field) return;
  const double value = theta_of(*field);
  if (theta && value != *theta)
    field->refuse(fmt::format("is {}, and another rope_theta of this file {}", value, *theta));
  theta = value;
}

// transformers 4 writes rope_theta and rope_scaling, transformers 5 rope_parameters.
void read_rotary(const JsonField& root, ModelConfig& config) {
  const auto theta = root.optional_member("rope_theta");
  const auto scaling = present(root, "rope_scaling");
  const auto newer = present(root, "rope_parameters");
  std::optional<double> value;
  if (theta) value = theta_of(*theta);
  config.rotary_scaling = scaling ? scaling_of(*scaling) : std::nullopt;
  if (scaling) take_theta(*scaling, value);
  if (newer) {
    const auto newer_scaling = scaling_of(*newer);
    if (scaling && newer_scaling != config.rotary_scaling)
      newer->refuse("says another thing than rope_scaling");
    config.rotary_scaling = newer_scaling;
    take_theta(*newer, value);
  }
  config.rotary_theta = value.value_or(usual_theta);
}

// Reads layer_types. `window`: that of layers with one; 0: the model has none.
std::vector<std::int64_t> windows_by_types(const JsonField& types, std::int64_t window, std::int64_t layers) {
  const auto windows = types.list(static_cast<std::size_t>(most_layers), [&](const JsonField& item) {
    const std::string word = item.text();
    if (word == "full_attention") return std::int64_t{0};
    if (word != "sliding_attention")
      item.refuse(
          fmt::format("is {}; \"full_attention\" and \"sliding_attention\" are supported", in_quotes(word)));
    if (window == 0) item.refuse("is \"sliding_attention\", and the model has no sliding_window");
    return window;
  });
  if (std::ssize(windows) != layers)
    types.refuse(fmt::format("has {} items, and num_hidden_layers is {}", windows.size(), layers));
  return windows;
}

// `window`: that of layers with one; 0: the model has none. Layers from `first` on have one, unless
// layer_types says otherwise.
void set_windows(const JsonField& root, std::int64_t window, std::int64_t first, ModelConfig& config) {
  const auto types = present(root, "layer_types");
  std::vector<std::int64_t> windows(static_cast<std::size_t>(config.layers));
  if (types)
    windows = windows_by_types(*types, window, config.layers);
  else
    std::fill(windows.begin() + std::min(first, config.layers), windows.end(), window);
  const bool any = std::any_of(windows.begin(), windows.end(), [](std::int64_t of) { return of != 0; });
  config.windows = any ? windows : std::vector<std::int64_t>();
}

// Returns 0 where the field is null.
std::int64_t window_of(const JsonField& root) {
  const auto field = root.optional_member("sliding_window");
  if (!field) return usual_window;
  return field->is_null() ? 0 : size_in_config(*field, most_of_others);
}

void read_qwen_windows(const JsonField& root, ModelConfig& config) {
  const std::int64_t window = flag(root, "use_sliding_window", false) ? window_of(root) : 0;
  std::int64_t first = 0;
  if (window > 0 && !present(root, "layer_types")) {
    const auto field = root.optional_member("max_window_layers");
    first = field ? field->integer() : usual_first_window;
    if (first < 0) field->refuse(fmt::format("is {}; at least 0 is supported", first));
  }
  set_windows(root, window, first, config);
}

// Reads what all of these families have.
void read_common(const JsonField& root, std::int64_t usual_keys, std::int64_t usual_head_width,
                 ModelConfig& config) {
  require_language_model(root);
  read_key_heads(root, usual_keys, config);
  read_head_width(root, usual_head_width, config);
  config.inner = size_in_config(root.member("intermediate_size"), most_width);
  config.tied = flag(root, "tie_word_embeddings", false);
  read_rotary(root, config);
  config.windows.clear();
}

json scaling_json(const std::optional<RotaryScaling>& scaling) {
  if (!scaling) return {};
  return {{"rope_type", "llama3"},
          {"factor", scaling->factor},
          {"low_freq_factor", scaling->low_frequency_factor},
          {"high_freq_factor", scaling->high_frequency_factor},
          {"original_max_position_embeddings", scaling->original_positions}};
}

void write_common(const ModelConfig& config, json& fields) {
  fields["num_key_value_heads"] = heads_of_keys(config);
  fields["intermediate_size"] = width_of_mlp(config);
  fields["tie_word_embeddings"] = config.tied;
  fields["rope_theta"] = config.rotary_theta;
  fields["rope_scaling"] = scaling_json(config.rotary_scaling);
  fields["use_cache"] = true;
}

// Returns the one window that some layers have; 0: no layer has one.
std::int64_t only_window(const ModelConfig& config) {
  std::int64_t window = 0;
  for (const std::int64_t of : config.windows) {
    if (of != 0 && window != 0 && of != window)
      throw InvalidInput(
          fmt::format("config.json: layers have windows of {} and of {} tokens; describe a "
                      "model whose windows are equal",
                      window, of));
    window = std::max(window, of);
  }
  return window;
}

json layer_types(const ModelConfig& config) {
  json types = json::array();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const bool has_window = !config.windows.empty() && config.windows[static_cast<std::size_t>(layer)] != 0;
    types.push_back(has_window ? "sliding_attention" : "full_attention");
  }
  return types;
}

// Writes layer_types only where max_window_layers does not say the same.
void write_qwen_windows(const ModelConfig& config, json& fields) {
  const std::int64_t window = only_window(config);
  const auto& windows = config.windows;
  const auto first = std::find(windows.begin(), windows.end(), window);
  fields["use_sliding_window"] = window != 0;
  fields["sliding_window"] = window == 0 ? json() : json(window);
  fields["max_window_layers"] = window == 0 ? config.layers : std::int64_t{first - windows.begin()};
  if (window != 0 && std::any_of(first, windows.end(), [](std::int64_t of) { return of == 0; }))
    fields["layer_types"] = layer_types(config);
}

}  // namespace

void read_llama_config(const JsonField& root, ModelConfig& config) { read_common(root, 0, 0, config); }

void read_mistral_config(const JsonField& root, ModelConfig& config) {
  read_common(root, keys_of_mistral, 0, config);
  const std::int64_t window = window_of(root);
  set_windows(root, window, 0, config);
  const bool in_every_layer =
      config.windows.empty() == (window == 0) && std::ranges::count(config.windows, 0) == 0;
  if (!in_every_layer)
    root.member("layer_types")
        .refuse("says another thing than sliding_window, which a Mistral has in every layer or in none");
}

void read_qwen2_config(const JsonField& root, ModelConfig& config) {
  read_common(root, keys_of_qwen, 0, config);
  read_qwen_windows(root, config);
}

void read_qwen3_config(const JsonField& root, ModelConfig& config) {
  read_common(root, keys_of_qwen, head_width_of_qwen3, config);
  read_qwen_windows(root, config);
}

void write_llama_config(const ModelConfig& config, json& fields) {
  if (only_window(config) != 0)
    throw InvalidInput("config.json: a Llama has no windows; describe a Mistral or a Qwen");
  write_common(config, fields);
  fields["head_dim"] = width_of_head(config);
}

void write_mistral_config(const ModelConfig& config, json& fields) {
  write_common(config, fields);
  const std::int64_t window = only_window(config);
  fields["head_dim"] = width_of_head(config);
  fields["sliding_window"] = window == 0 ? json() : json(window);
  if (window != 0 && std::find(config.windows.begin(), config.windows.end(), 0) != config.windows.end())
    throw InvalidInput(
        "config.json: some layers of a Mistral have a window and others none; describe a Qwen");
}

void write_qwen2_config(const ModelConfig& config, json& fields) {
  write_common(config, fields);
  if (width_of_head(config) * config.heads != config.width) fields["head_dim"] = width_of_head(config);
  write_qwen_windows(config, fields);
}

void write_qwen3_config(const ModelConfig& config, json& fields) {
  write_common(config, fields);
  fields["head_dim"] = width_of_head(config);
  write_qwen_windows(config, fields);
}

}  // namespace stowage
