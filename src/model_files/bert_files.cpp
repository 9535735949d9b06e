#include <fmt/format.h>

#include "src/model_files/family_files.h"

namespace stowage {
namespace {

constexpr std::string_view fused = ".self.query_key_value.";

// Returns the names of the query's, the key's and the value's tensors, which one parameter holds.
std::vector<std::string> fused_names(const std::string& name, std::size_t at) {
  const std::string head = name.substr(0, at) + ".self.";
  const std::string tail = name.substr(at + fused.size() - 1);
  return {head + "query" + tail, head + "key" + tail, head + "value" + tail};
}

// Linear weights are transposed in files. Tables have a row for each token, position or type on both sides.
ParameterLayout layout_in_bert_files(const Tensor& parameter, const ModelConfig&) {
  const std::string& name = parameter.name;
  const std::size_t at = name.find(fused);
  ParameterLayout layout;
  layout.names = at == std::string::npos ? std::vector{name} : fused_names(name, at);
  layout.transposed = name.find("embeddings.") == std::string::npos;
  if (name == "bert.embeddings.word_embeddings.weight" || name == "cls.predictions.bias")
    layout.rows = RowCount::vocabulary;
  if (name == "bert.embeddings.position_embeddings.weight") layout.rows = RowCount::positions;
  layout.may_be_missing = name.starts_with("cls.") || name.starts_with("bert.pooler.");
  return layout;
}

std::vector<KnownShape> tables_of_bert(const ModelConfig& config) {
  return {{"bert.embeddings.word_embeddings.weight", {config.vocabulary, config.width}},
          {"bert.embeddings.position_embeddings.weight", {config.sequence, config.width}}};
}

KnownShape in_bert_layer(const ModelConfig& config, std::int64_t layer) {
  return {fmt::format("bert.encoder.layer.{}.intermediate.dense.weight", layer),
          {4 * config.width, config.width}};
}

}  // namespace

const FamilyFiles& bert_files() {
  static const FamilyFiles files{
      .family = &bert_family,
      .model_type = "bert",
      .architecture = "BertForPreTraining",
      .class_prefix = "Bert",
      .tells = {"hidden_size", "type_vocab_size"},
      .fields = {.layers = "num_hidden_layers",
                 .width = "hidden_size",
                 .heads = "num_attention_heads",
                 .positions = "max_position_embeddings",
                 .epsilon = "layer_norm_eps",
                 .inner = "intermediate_size",
                 .embedding_dropout = "hidden_dropout_prob",
                 .attention_dropout = "attention_probs_dropout_prob",
                 .residual_dropout = "hidden_dropout_prob"},
      .fixed = {{"tie_word_embeddings", "true"},
                {"hidden_act", "\"gelu\""},
                {"is_decoder", "false"},
                {"add_cross_attention", "false"},
                {"is_encoder_decoder", "false"},
                {"position_embedding_type", "\"absolute\""},
                {"type_vocab_size", "2"}},
      .inner_may_be_null = false,
      .writes_absent_padding = false,
      .usual_dropout = 0.1,
      .usual_epsilon = 1e-12,
      .read_more = nullptr,
      .write_more = nullptr,
      .keeps_source = false,
      .joint_fields = {},
      .prefix = "bert.",
      .whole_by = "cls.seq_relationship.weight",
      .tied = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
               {"cls.predictions.decoder.bias", "cls.predictions.bias"}},
      .passed_over = {"embeddings.position_ids"},
      // Older names are those of the BERT paper's own code.
      .older_endings = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}},
      .layout = layout_in_bert_files,
      .tables = tables_of_bert,
      .in_layer = in_bert_layer};
  return files;
}

}  // namespace stowage
