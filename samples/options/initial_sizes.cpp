#include "samples/options/initial_sizes.h"

#include <fmt/format.h>

#include "stowage/model_files.h"

namespace stowage::samples {
namespace {

GptConfig sizes_of(const ModelDescription& model, ModelKind kind) {
  if (kind == ModelKind::gpt2) return gpt_config(model);
  const BertConfig stored = bert_config(model);
  GptConfig sizes;
  sizes.layers = stored.layers;
  sizes.width = stored.width;
  sizes.heads = stored.heads;
  sizes.vocabulary = stored.vocabulary;
  sizes.sequence = stored.sequence;
  sizes.dropout = stored.dropout;
  sizes.attention_dropout = stored.attention_dropout;
  sizes.epsilon = stored.epsilon;
  return sizes;
}

[[noreturn]] void contradict(const Options& options, const char* flag, std::int64_t given, const char* field,
                             std::int64_t value, const char* remedy) {
  throw InvalidInput(fmt::format("{} {} contradicts --init {}, whose config.json has {} {}: {}", flag, given,
                                 options.init, field, value, remedy));
}

}  // namespace

void take_initial_sizes(Options& options, const GivenSizes& given) {
  if (options.init.empty()) return;
  const ModelDescription found = with_prefix("--init ", [&] { return read_model_description(options.init); });
  const GptConfig stored = about_initial(options, [&] { return sizes_of(found, options.kind); });
  const bool bert = options.kind == ModelKind::bert;
  GptConfig& model = options.model;
  const auto take = [&](bool is_given, std::int64_t& size, std::int64_t value, const char* flag,
                        const char* field) {
    if (is_given && size != value) contradict(options, flag, size, field, value, "leave the flag out");
    size = value;
  };
  take(given.layers, model.layers, stored.layers, "--layers", bert ? "num_hidden_layers" : "n_layer");
  take(given.width, model.width, stored.width, "--width", bert ? "hidden_size" : "n_embd");
  take(given.heads, model.heads, stored.heads, "--heads", bert ? "num_attention_heads" : "n_head");
  if (!given.sequence) model.sequence = stored.sequence;
  if (model.sequence > stored.sequence)
    contradict(options, "--sequence", model.sequence, bert ? "max_position_embeddings" : "n_positions",
               stored.sequence, "choose at most these");
  if (!given.dropout) {
    model.dropout = stored.dropout;
    model.embedding_dropout = stored.embedding_dropout;
    model.attention_dropout = stored.attention_dropout;
    model.residual_dropout = stored.residual_dropout;
  }
  model.epsilon = stored.epsilon;
  model.vocabulary = stored.vocabulary;
  options.initial = found;
  const TensorFiles files = with_prefix("--init ", [&] { return TensorFiles(options.init); });
  about_initial(options, [&] { check_sizes(files, found); });
}

}  // namespace stowage::samples
