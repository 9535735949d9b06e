#include "samples/model_files.h"

#include <fmt/format.h>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

constexpr std::int64_t bytes_as_tokens = 256;

// Runs `action`, and puts the flag before what it complains of.
template <class Action>
auto of_flag(const char* flag, Action action) {
  try {
    return action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{} {}", flag, error.what()));
  }
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
  const GptConfig stored = of_flag("--init", [&] { return gpt_config(found); });
  GptConfig& model = options.model;
  const auto take = [&](bool is_given, std::int64_t& size, std::int64_t value, const char* flag,
                        const char* field) {
    if (is_given && size != value) contradict(options, flag, size, field, value, "leave the flag out");
    size = value;
  };
  take(given.layers, model.layers, stored.layers, "--layers", "n_layer");
  take(given.width, model.width, stored.width, "--width", "n_embd");
  take(given.heads, model.heads, stored.heads, "--heads", "n_head");
  if (!given.sequence) model.sequence = stored.sequence;
  if (model.sequence > stored.sequence)
    contradict(options, "--sequence", model.sequence, "n_positions", stored.sequence, "choose at most these");
  if (!given.dropout) model.dropout = stored.dropout;
  model.vocabulary = stored.vocabulary;
  if (model.vocabulary < bytes_as_tokens)
    throw InvalidInput(
        fmt::format("--init {}: config.json has vocab_size {}, and a text's bytes are tokens 0 to 255: give "
                    "a model of at least "
                    "256 tokens",
                    options.init, model.vocabulary));
  options.initial = found;
}

InitialModel::InitialModel(const Options& options, const Graph& graph) : options_(options) {
  if (!options.initial) return;
  of_flag("--init", [&] {
    files_.emplace(options.init);
    check_model(*files_, *options.initial, graph);
  });
}

std::string InitialModel::load(const Graph& graph, Engine& engine) const {
  if (!files_) return {};
  of_flag("--init", [&] { load_model(*files_, *options_.initial, graph, access_to(engine)); });
  return fmt::format("init          {}: {} tensors\n\n", options_.init, files_->size());
}

ExportedModel::ExportedModel(const Options& options) : options_(options) {
  if (options.export_folder.empty() || options.plan_only) return;
  of_flag("--export", [&] { folder_ = std::make_unique<ExportFolder>(options.export_folder); });
}

std::string ExportedModel::write(const Graph& graph, Engine& engine) {
  if (!folder_) return {};
  ModelDescription model = describe(options_.model);
  if (options_.initial) {
    model.begin_token = options_.initial->begin_token;
    model.end_token = options_.initial->end_token;
    model.padding_token = options_.initial->padding_token;
  }
  save_model(folder_->path(), model, graph, access_to(engine));
  folder_->commit();
  return fmt::format("\nexport        {}: safetensors and config.json\n", options_.export_folder);
}

}  // namespace stowage::samples
