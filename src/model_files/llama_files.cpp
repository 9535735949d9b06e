#include <fmt/format.h>

#include "src/model_files/family_files.h"
#include "src/model_files/llama_config.h"
#include "src/models/require_valid.h"
#include "src/models/table_blocks.h"

namespace stowage {
namespace {

constexpr std::string_view joined_projection = ".qkv_proj.";

// Query, key and value are rows of one parameter.
ParameterLayout projections(const std::string& name, std::size_t at, const ModelConfig& config) {
  const std::string head = name.substr(0, at) + ".";
  const std::string tail = "_proj." + name.substr(at + joined_projection.size());
  const std::int64_t queries = config.heads * width_of_head(config);
  const std::int64_t keys = heads_of_keys(config) * width_of_head(config);
  ParameterLayout layout{{head + "q" + tail, head + "k" + tail, head + "v" + tail}};
  layout.heights = {queries, keys, keys};
  return layout;
}

ParameterLayout layout_in_llama_files(const Tensor& parameter, const ModelConfig& config) {
  const std::optional<BlockName> block = block_in(parameter.name);
  const std::string own(block ? block->table : parameter.name);
  const std::string name = own == "lm_head.weight" ? own : "model." + own;
  const std::size_t at = name.find(joined_projection);
  if (at != std::string::npos) return projections(name, at, config);
  ParameterLayout layout{{name}};
  if (own == "lm_head.weight" || own == "embed_tokens.weight") layout.rows = RowCount::vocabulary;
  if (block) layout.first_row = block->first_row;
  return layout;
}

std::vector<KnownShape> tables_of_llama(const ModelConfig& config) {
  std::vector<KnownShape> tables = {{"model.embed_tokens.weight", {config.vocabulary, config.width}}};
  if (!config.tied) tables.push_back({"lm_head.weight", {config.vocabulary, config.width}});
  return tables;
}

KnownShape in_llama_layer(const ModelConfig& config, std::int64_t layer) {
  return {fmt::format("model.layers.{}.mlp.down_proj.weight", layer), {config.width, width_of_mlp(config)}};
}

// Returns the record of a Llama, which those of its relatives start from.
FamilyFiles like_llama() {
  return {.family = &llama_family,
          .model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .class_prefix = "LlamaForCausalLM",
          .tells = {},
          .fields = {.layers = "num_hidden_layers",
                     .width = "hidden_size",
                     .heads = "num_attention_heads",
                     .positions = "max_position_embeddings",
                     .epsilon = "rms_norm_eps",
                     .inner = nullptr,
                     .embedding_dropout = nullptr,
                     .attention_dropout = "attention_dropout",
                     .residual_dropout = nullptr},
          .fixed = {{"hidden_act", "\"silu\""},
                    {"quantization_config", "null", false},
                    {"text_config", "null", false},
                    {"mlp_bias", "false", false},
                    {"pretraining_tp", "1", false},
                    {"partial_rotary_factor", "1.0", false}},
          .inner_may_be_null = false,
          .writes_absent_padding = false,
          .usual_dropout = 0,
          .usual_epsilon = 1e-6,
          .read_more = read_llama_config,
          .write_more = write_llama_config,
          .keeps_source = true,
          .joint_fields = {{"rope_theta", "rope_scaling", "rope_parameters"},
                           {"sliding_window", "use_sliding_window", "max_window_layers", "layer_types"}},
          .prefix = "model.",
          .whole_by = "model.norm.weight",
          .tied = {{"lm_head.weight", "model.embed_tokens.weight"}},
          .passed_over = {".rotary_emb.inv_freq"},
          .older_endings = {},
          .layout = layout_in_llama_files,
          .tables = tables_of_llama,
          .in_layer = in_llama_layer};
}

}  // namespace

const FamilyFiles& llama_files() {
  static const FamilyFiles files = [] {
    FamilyFiles llama = like_llama();
    llama.fixed.push_back({"attention_bias", "false"});
    return llama;
  }();
  return files;
}

const FamilyFiles& mistral_files() {
  static const FamilyFiles files = [] {
    FamilyFiles mistral = like_llama();
    mistral.family = &mistral_family;
    mistral.model_type = "mistral";
    mistral.architecture = mistral.class_prefix = "MistralForCausalLM";
    mistral.fixed.push_back({"attention_bias", "false", false});
    mistral.read_more = read_mistral_config;
    mistral.write_more = write_mistral_config;
    return mistral;
  }();
  return files;
}

// Queries, keys and values of a Qwen2 always have a bias.
const FamilyFiles& qwen2_files() {
  static const FamilyFiles files = [] {
    FamilyFiles qwen = like_llama();
    qwen.family = &qwen2_family;
    qwen.model_type = "qwen2";
    qwen.architecture = qwen.class_prefix = "Qwen2ForCausalLM";
    qwen.read_more = read_qwen2_config;
    qwen.write_more = write_qwen2_config;
    return qwen;
  }();
  return files;
}

const FamilyFiles& qwen3_files() {
  static const FamilyFiles files = [] {
    FamilyFiles qwen = like_llama();
    qwen.family = &qwen3_family;
    qwen.model_type = "qwen3";
    qwen.architecture = qwen.class_prefix = "Qwen3ForCausalLM";
    qwen.fixed.push_back({"attention_bias", "false"});
    qwen.read_more = read_qwen3_config;
    qwen.write_more = write_qwen3_config;
    return qwen;
  }();
  return files;
}

}  // namespace stowage
