#include "samples/run/init_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <span>

#include "samples/options/initial_sizes.h"
#include "src/base/output_file.h"
#include "src/model_files/family_files.h"

namespace stowage::samples {
namespace {

namespace fs = std::filesystem;

// Files beside a model that an export has as they are; those of a tokenizer come last.
constexpr std::array companions = {"generation_config.json",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "tokenizer.model",
                                   "vocab.json",
                                   "merges.txt"};
constexpr std::size_t without_tokenizer = 3;

// Copies the first `count` companions beside the model files at `init` to `folder`. Returns a text that names
// them, and those that cannot be copied: a finished training is not lost for them.
std::string copy_companions(const std::string& init, const std::string& folder, std::size_t count) {
  std::string text;
  if (init.empty()) return text;
  std::error_code error;
  const fs::path from = fs::is_directory(init, error) ? fs::path(init) : fs::path(init).parent_path();
  for (const char* name : std::span(companions).first(count)) {
    if (!fs::is_regular_file(from / name, error)) continue;
    const bool copied = fs::copy_file(from / name, fs::path(folder) / name, error);
    text += copied ? fmt::format(", {}", name) : fmt::format(", {} (not copied: {})", name, error.message());
  }
  return text;
}

// Returns what an export in 16 bits rounds, with how not to.
std::string rounding_of(const Options& options) {
  const bool trained = !options.trains_nothing || options.resume;
  if (!trained || options.export_type == SavedType::f32) return {};
  const bool bf16 = options.export_type == SavedType::bf16;
  if (!bf16 && size_of(options.file_type) != 2) return {};
  return fmt::format("; trained weights rounded to {} (--export-type f32 keeps the f32 masters)",
                     bf16 ? "bf16" : to_string(options.file_type));
}

}  // namespace

InitialModel::InitialModel(const Options& options, const Graph& graph) : options_(options) {
  if (!options.initial) return;
  with_prefix("--init ", [&] { files_.emplace(options.init); });
  about_initial(options, [&] { check_model(*files_, *options.initial, graph); });
}

std::string InitialModel::load(const Graph& graph, EngineGroup& engine) const {
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
  with_prefix("--export ", [&] { folder_ = std::make_unique<ExportFolder>(options.export_folder); });
}

std::string ExportedModel::write(const Task& task, const Graph& graph, const ReadPart& read,
                                 const InitialModel& initial, const std::string& whose) {
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
  save_model(folder_->path(), model, graph, {.fill = {}, .write = {}, .read = read},
             {.type = options_.export_type, .source = initial.files()});
  std::string names;
  const auto files = task.files();
  for (const auto& [name, contents] : files) {
    write_file("--export", folder_->path() + '/' + name, contents);
    names += ", " + name;
  }
  if (files_of(*model.family).keeps_source)
    names += copy_companions(options_.init, folder_->path(),
                             files.empty() ? companions.size() : without_tokenizer);
  folder_->commit();
  const std::int64_t sequence = options_.model.sequence;
  const std::string rows =
      model.config.sequence == sequence || !model.family->learned_positions
          ? ""
          : fmt::format("; {} positions, of which those behind --sequence {} are as they were read",
                        model.config.sequence, sequence);
  const std::string kept =
      options_.model.keep_tokens == 1
          ? ""
          : fmt::format(
                "; each MLP was trained on {} of the tokens, which no file says: evaluate with "
                "--keep-tokens {}",
                options_.model.keep_tokens, options_.model.keep_tokens);
  return fmt::format("\nexport        {}: safetensors and config.json{}{}{}{}{}\n", options_.export_folder,
                     names, rows, rounding_of(options_), kept, whose);
}

}  // namespace stowage::samples
