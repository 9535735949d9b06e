#include <fmt/format.h>

#include "src/model_files/family_files.h"

namespace stowage {
namespace {

ParameterLayout layout_in_gpt_files(const Tensor& parameter, const ModelConfig&) {
  ParameterLayout layout{{"transformer." + parameter.name}};
  if (parameter.name == "wte.weight") layout.rows = RowCount::vocabulary;
  if (parameter.name == "wpe.weight") layout.rows = RowCount::positions;
  return layout;
}

std::vector<KnownShape> tables_of_gpt(const ModelConfig& config) {
  return {{"transformer.wte.weight", {config.vocabulary, config.width}},
          {"transformer.wpe.weight", {config.sequence, config.width}}};
}

KnownShape in_gpt_layer(const ModelConfig& config, std::int64_t layer) {
  return {fmt::format("transformer.h.{}.mlp.c_fc.weight", layer), {config.width, 4 * config.width}};
}

}  // namespace

const FamilyFiles& gpt_files() {
  static const FamilyFiles files{.family = &gpt_family,
                                 .model_type = "gpt2",
                                 .architecture = "GPT2LMHeadModel",
                                 .class_prefix = "GPT2",
                                 .tells = {"n_embd", "n_ctx"},
                                 .fields = {.layers = "n_layer",
                                            .width = "n_embd",
                                            .heads = "n_head",
                                            .positions = "n_positions",
                                            .epsilon = "layer_norm_epsilon",
                                            .inner = "n_inner",
                                            .embedding_dropout = "embd_pdrop",
                                            .attention_dropout = "attn_pdrop",
                                            .residual_dropout = "resid_pdrop"},
                                 .fixed = {{"tie_word_embeddings", "true"},
                                           {"activation_function", "\"gelu_new\""},
                                           {"is_decoder", "false"},
                                           {"add_cross_attention", "false"},
                                           {"is_encoder_decoder", "false"},
                                           {"scale_attn_weights", "true"},
                                           {"scale_attn_by_inverse_layer_idx", "false"}},
                                 .inner_may_be_null = true,
                                 .writes_absent_padding = true,
                                 .usual_dropout = 0.1,
                                 .usual_epsilon = 1e-5,
                                 .read_more = nullptr,
                                 .write_more = nullptr,
                                 .keeps_source = false,
                                 .joint_fields = {},
                                 .prefix = "transformer.",
                                 .whole_by = "transformer.ln_f.weight",
                                 .tied = {{"lm_head.weight", "transformer.wte.weight"}},
                                 .passed_over = {".attn.bias", ".attn.masked_bias"},
                                 .older_endings = {},
                                 .layout = layout_in_gpt_files,
                                 .tables = tables_of_gpt,
                                 .in_layer = in_gpt_layer};
  return files;
}

}  // namespace stowage
