#include "samples/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/output_file.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

// Runs `action`, and puts the flag before what it complains of.
template <class Action>
auto of_flag(const char* flag, Action action) {
  try {
    return action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{} {}", flag, error.what()));
  }
}

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
  const ModelDescription found = of_flag("--init", [&] { return read_model_description(options.init); });
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
  const TensorFiles files = of_flag("--init", [&] { return TensorFiles(options.init); });
  about_initial(options, [&] { check_sizes(files, found); });
}

InitialModel::InitialModel(const Options& options, const Graph& graph) : options_(options) {
  if (!options.initial) return;
  of_flag("--init", [&] { files_.emplace(options.init); });
  about_initial(options, [&] { check_model(*files_, *options.initial, graph); });
}

std::string InitialModel::load(const Graph& graph, Engine& engine) const {
  if (!files_) return {};
  const MissingParameters missing = about_initial(
      options_, [&] { return load_model(*files_, *options_.initial, graph, access_to(engine)); });
  std::string text = fmt::format("init          {}: {} tensors", options_.init, files_->size());
  if (!missing.empty())
    text += fmt::format("; {} that it lacks start at random: {}", missing.size(), fmt::join(missing, ", "));
  return text + "\n\n";
}

ExportedModel::ExportedModel(const Options& options) : options_(options) {
  if (options.export_folder.empty() || options.plan_only) return;
  of_flag("--export", [&] { folder_ = std::make_unique<ExportFolder>(options.export_folder); });
}

std::string ExportedModel::write(const Task& task, const Graph& graph, Engine& engine,
                                 const InitialModel& initial) {
  if (!folder_) return {};
  ModelDescription model = task.description();
  if (options_.initial) {
    const auto keep = [](std::optional<std::int64_t> stored, std::optional<std::int64_t>& token) {
      if (stored) token = stored;
    };
    keep(options_.initial->begin_token, model.begin_token);
    keep(options_.initial->end_token, model.end_token);
    keep(options_.initial->padding_token, model.padding_token);
  }
  save_model(folder_->path(), model, graph, access_to(engine), {.beyond = initial.files()});
  std::string names;
  for (const auto& [name, contents] : task.files()) {
    write_file("--export", folder_->path() + '/' + name, contents);
    names += ", " + name;
  }
  folder_->commit();
  const std::int64_t sequence = options_.model.sequence;
  const std::string rows =
      model.positions == sequence
          ? ""
          : fmt::format("; {} positions, of which those behind --sequence {} are as they were read",
                        model.positions, sequence);
  return fmt::format("\nexport        {}: safetensors and config.json{}{}\n", options_.export_folder, names,
                     rows);
}

}  // namespace stowage::samples
