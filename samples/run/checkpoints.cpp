#include "samples/run/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "samples/report/report.h"
#include "samples/run/model_fields.h"
#include "samples/run/stored_model.h"
#include "src/base/printable.h"
#include "src/checkpoint/state_json.h"
#include "src/graph/finite.h"
#include "src/model_files/files.h"
#include "stowage/coded_activations.h"
#include "stowage/error.h"
#include "tools/choices/model_spec.h"

namespace stowage::samples {
namespace {

constexpr const char* steps_field = "training.steps";
constexpr const char* head_tokens_field = "model.head_tokens";
constexpr const char* first_head_tokens = "2048";         // value of checkpoints without this field
constexpr const char* method_field = "device.attention";  // absent in runs without a card
constexpr const char* groups_field = "model.gradient_groups";
constexpr const char* codes_field = "model.code_activations";

// A field that a resumed run may change; all but --steps only if the flag is given, so that a forgotten flag
// does not count as a change.
struct Changeable {
  const char* field;
  const char* flag;
  const char* what;
};
constexpr const char* other_rates = "other learning rates, and other bits";
constexpr const char* other_bits = "other bits";
constexpr Changeable changeable[] = {
    {steps_field, "--steps", other_rates},
    {"training.learning_rate", "--learning-rate", other_rates},
    {"training.schedule", "--schedule", other_rates},
    {"training.final_share", "--final-share", other_rates},
    {"optimizer.clip", "--clip", other_bits},
    {"optimizer.beta1", "--beta1", other_bits},
    {"optimizer.beta2", "--beta2", other_bits},
    {"optimizer.epsilon", "--epsilon", other_bits},
    {"model.micro_batches", "--micro-batches", "sums in another order, and other bits"},
    {head_tokens_field, "--head-chunk", other_bits}};

// Returns the values of fields that a checkpoint leaves out.
const std::map<std::string, std::string>& unsaid() {
  static const std::map<std::string, std::string> fields = {
      {head_tokens_field, first_head_tokens},
      {groups_field, "1"},
      {codes_field, "off"},
      {keep_tokens_field, "1"},
      {moments_field, std::string(to_string(Moments::f32))}};
  return fields;
}

// Runs `action`, and puts the flag before the message of an InvalidInput.
template <class Action>
auto with_flag(const char* flag, Action action) {
  try {
    return action();
  } catch (const DamagedCheckpoint& error) {
    throw InvalidInput(error.good().empty() ? fmt::format("{} {}", flag, error.what())
                                            : fmt::format("{} {}: give --resume {} to go on from that one",
                                                          flag, error.what(), error.good()));
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{} {}", flag, error.what()));
  }
}

}  // namespace

std::map<std::string, std::string> configuration_of(const Options& options,
                                                    const std::map<std::string, std::string>& task) {
  const ModelConfig& model = options.model;
  const AdamW optimizer = optimizer_of(options);
  const auto exact = [](auto value) { return fmt::format("{}", value); };
  std::map<std::string, std::string> result = {
      {"model.type", exact(to_string(options.type))},
      {"model.layers", exact(model.layers)},
      {"model.width", exact(model.width)},
      {"model.heads", exact(model.heads)},
      {"model.vocabulary", exact(model.vocabulary)},
      {"model.padded_vocabulary", exact(std::max(model.vocabulary, model.padded_vocabulary))},
      {"model.sequence", exact(model.sequence)},
      {"model.batch", exact(model.batch)},
      {"model.micro_batches", exact(model.micro_batches)},
      {"model.embedding_dropout", exact(model.embedding_dropout.value_or(model.dropout))},
      {"model.attention_dropout", exact(model.attention_dropout.value_or(model.dropout))},
      {"model.residual_dropout", exact(model.residual_dropout.value_or(model.dropout))},
      {"model.epsilon", exact(model.epsilon)},
      {head_tokens_field, exact(head_tokens(model, options.type))},
      {"optimizer.kind", "adamw"},
      {"optimizer.beta1", exact(optimizer.beta1)},
      {"optimizer.beta2", exact(optimizer.beta2)},
      {"optimizer.epsilon", exact(optimizer.epsilon)},
      {"optimizer.weight_decay", exact(optimizer.weight_decay)},
      {"optimizer.decayed", exact(to_string(optimizer.decayed))},
      {"optimizer.clip", exact(optimizer.clip)},
      {"training.learning_rate", exact(options.learning_rate)},
      {"training.schedule", exact(to_string(options.descent))},
      {"training.final_share", exact(options.final_share)},
      {"training.warmup", exact(options.warmup)},
      {steps_field, exact(options.steps)},
      {"training.seed", exact(options.seed)}};
  if (model.gradient_groups != 1) result[groups_field] = exact(model.gradient_groups);
  if (model.code_activations) result[codes_field] = coding_word(model.code_activations);
  if (optimizer.moments != Moments::f32) result[moments_field] = to_string(optimizer.moments);
  result.merge(family_fields(model));
  result.insert(task.begin(), task.end());
  return result;
}

Bytes copy_bytes(const Options& options, const Graph& graph) {
  const bool copies = !options.checkpoint_folder.empty() && !options.checkpoint_blocking;
  return copies && !options.trains_nothing ? checkpoint_bytes(checkpoint_tensors(graph)) : 0;
}

Budget budget_beside_copy(const Options& options, const Graph& graph) {
  Budget budget = options.budget;
  const Bytes copy = copy_bytes(options, graph);
  if (budget.host == unlimited) return budget;
  if (copy > 0 && budget.host <= copy)
    throw InvalidInput(
        fmt::format("--host-memory {}: the copy of the state that checkpoints are written from "
                    "takes {} of it; give more, or add --checkpoint-blocking",
                    format_bytes(budget.host), format_bytes(copy)));
  budget.host = (budget.host - copy) / static_cast<Bytes>(options.devices);
  return budget;
}

Checkpoint checkpoint_at(const std::string& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error) &&
                      !std::filesystem::exists(std::filesystem::path(path) / "state.json", error);
  const auto there = folder ? list_checkpoints(path) : std::vector<CheckpointName>();
  if (!there.empty())
    throw InvalidInput(
        fmt::format("{}: this is a folder of checkpoints: give one of them, such as --resume {}, "
                    "the newest, or --checkpoint {} --resume",
                    path, there.front().path, path));
  return Checkpoint(path);
}

RunCheckpoints::RunCheckpoints(Options& options, const Task& task, bool writes, const FreeDiskBytes& free)
    : options_(options), task_(task), patience_(options.patience) {
  if (options.plan_only) {
    if (options.resume) with_flag("--resume", [&] { keep_planned_head(); });
    return;
  }
  configuration_ = configuration_of(options, task.configuration());
  if (writes && !options.checkpoint_folder.empty())
    with_flag("--checkpoint", [&] {
      folder_.emplace(options.checkpoint_folder, options.keep, free);
      if (options.keep_best) folder_->require_best_link();
    });
  if (options.resume) with_flag("--resume", [&] { take_start(); });
  if (folder_) take_best();
  if (best_) notes_ += fmt::format("best so far   {}/best: loss {:.4f}\n", folder_->path(), *best_);
  if (options.resume || !folder_) return;
  const auto there = list_checkpoints(folder_->path());
  if (!there.empty())
    throw InvalidInput(
        fmt::format("--checkpoint {}: there are checkpoints in it, the newest of step {}; add "
                    "--resume to go on from that, or name another folder",
                    options.checkpoint_folder, there.front().step));
}

void RunCheckpoints::take_start() {
  {
    const Underway work("checking", "the checkpoint to go on from");
    if (!options_.resume_from.empty())
      start_ = checkpoint_at(options_.resume_from);
    else
      start_ = open_newest_checkpoint(folder_->path());
  }
  if (!start_ && options_.trains_nothing)
    throw InvalidInput(
        fmt::format("{}: there is no checkpoint in it, and --steps 0 makes none", folder_->path()));
  if (!start_) {
    notes_ = fmt::format("resume        no checkpoint in {} yet: from the beginning\n", folder_->path());
    return;
  }
  keep_head(start_->state(), start_->folder());
  std::map<std::string, std::string> wanted = configuration_;
  if (options_.trains_nothing) keep_training(wanted);
  allow_changes(wanted);
  start_->require_configuration(wanted, unsaid());
  saved_ = first_step();
  if (options_.trains_nothing) {
    options_.steps = first_step();
    notes_ = fmt::format("resume        {}: step {}; nothing is trained\n", start_->folder(), first_step());
    return;
  }
  if (first_step() > options_.steps)
    throw InvalidInput(fmt::format(
        "{}: it is of step {}, and {} {}; give more", start_->folder(), first_step(),
        options_.epochs ? fmt::format("--epochs {} are", *options_.epochs) : "--steps is", options_.steps));
  notes_ = fmt::format("resume        {}: step {} of {}\n", start_->folder(), first_step(), options_.steps);
  // A constant rate does not depend on the number of steps.
  const bool constant = options_.descent == Descent::constant &&
                        wanted["training.schedule"] == configuration_["training.schedule"];
  for (const auto& [field, flag, what] : changeable) {
    if (wanted[field] == configuration_[field]) continue;
    const bool changes = !constant || std::string_view(field) != steps_field;
    notes_ += fmt::format("              {} was {} and is {}{}\n", flag, wanted[field], configuration_[field],
                          changes ? fmt::format(": from here on {}", what) : "");
  }
}

// Keeps the order of the head's sums, and so the bits, of the run before, unless a flag says otherwise.
void RunCheckpoints::keep_head(const CheckpointState& state, const std::string& folder) {
  const auto& stored = state.configuration;
  if (!options_.changed.contains("--table-rows")) {
    options_.model.table_rows = 0;
    configuration_.erase(table_rows_field);
    if (const auto rows = stored.find(table_rows_field); rows != stored.end()) {
      take_family_fields({*rows}, folder + "/state.json", options_.model);
      configuration_.insert(*rows);
    }
  }
  if (options_.changed.contains("--head-chunk")) return;
  const auto found = stored.find(head_tokens_field);
  const std::string text = found == stored.end() ? first_head_tokens : found->second;
  options_.model.head_tokens =
      parse_count(fmt::format("{}: 'configuration.{}'", folder, head_tokens_field), text);
  configuration_[head_tokens_field] = text;
}

// Reads no tensor: the plan of a resumed run is that of its model.
void RunCheckpoints::keep_planned_head() {
  std::string folder = options_.resume_from;
  if (folder.empty()) {
    const std::vector<CheckpointName> there = list_checkpoints(options_.checkpoint_folder);
    if (there.empty()) return;
    folder = there.front().path;
  }
  const std::string file = folder + "/state.json";
  keep_head(state_from_json(read_small_file(file, largest_state_json, "name a whole checkpoint"), file),
            folder);
}

// Requires of a run without steps only that the model computes the same and was not trained
// on the evaluation data.
void RunCheckpoints::keep_training(std::map<std::string, std::string>& wanted) {
  // The checkpoint's graph has these moments.
  options_.moments = moments_in(start_->state(), start_->folder());
  static const std::set<std::string> computed = {"model.kind",     "model.type",    "model.layers",
                                                 "model.width",    "model.heads",   "model.vocabulary",
                                                 "model.sequence", "model.epsilon", "model.padded_vocabulary",
                                                 "data.tokenizer"};
  const auto& stored = start_->state().configuration;
  const auto differs = [&](const char* field) {
    const auto theirs = stored.find(field);
    const auto ours = wanted.find(field);
    return ours != wanted.end() && (theirs == stored.end() || theirs->second != ours->second);
  };
  if (options_.evaluate_every > 0 && options_.evaluation_data.empty() && differs("data.text"))
    throw InvalidInput(fmt::format(
        "{}: it was not trained on what --data leaves beside the tail that is held out, so it may "
        "have seen that tail; name what to evaluate by --evaluation-data, or give the "
        "--evaluation-share of its training",
        start_->folder()));
  const auto is_computed = [](const std::string& field) {
    return computed.contains(field) || is_family_field(field);
  };
  for (auto it = wanted.begin(); it != wanted.end();)
    it = is_computed(it->first) ? std::next(it) : wanted.erase(it);
  for (const auto& [field, value] : stored)
    if (!is_computed(field)) wanted[field] = value;
}

// Takes the best loss from the folder. A best checkpoint of a later step than the saved one is of a run that
// was given up.
void RunCheckpoints::take_best() {
  if (!options_.keep_best) return;
  const auto best = find_best_checkpoint(folder_->path());
  best_ = best && best->step <= saved_ ? std::optional(best->score) : std::nullopt;
}

std::optional<LossScale> RunCheckpoints::first_loss_scale() const {
  if (options_.type != DataType::f16) return {};
  if (start_ && start_->state().loss_scale) return start_->state().loss_scale;
  return LossScale{options_.loss_scale};
}

void RunCheckpoints::take_graph(const Graph& graph) {
  graph_ = &graph;
  if (start_) with_flag("--resume", [&] { start_->require_graph(graph); });
}

// Changed flags are the user's choice; the run follows them from here on.
void RunCheckpoints::allow_changes(std::map<std::string, std::string>& wanted) {
  const auto& stored = start_->state().configuration;
  for (const Changeable& each : changeable) {
    const auto found = stored.find(each.field);
    const bool allowed = std::string_view(each.flag) == "--steps" || options_.changed.contains(each.flag);
    if (found != stored.end() && allowed) wanted[each.field] = found->second;
  }
  // The attention method of this run is known after its first step.
  if (const auto found = stored.find(method_field); found != stored.end())
    wanted[method_field] = before_ = found->second;
}

void RunCheckpoints::made_with(const std::string& attention) {
  if (attention.empty()) return;
  configuration_[method_field] = attention;
  const std::string before = std::exchange(before_, {});
  if (before.empty() || before == attention) return;
  const std::string differs =
      fmt::format("{}/state.json: 'configuration.{}' is '{}', and that of this run is '{}'", start_->folder(),
                  method_field, before, attention);
  const char* const asked = std::getenv("STOWAGE_ATTENTION");
  if (asked == nullptr || *asked == '\0') {
    // A run by several methods can be resumed if each shape gets the method that it had.
    const std::string same = before == "cudnn" || before == "own"
                                 ? fmt::format("set STOWAGE_ATTENTION={} to go on as it was begun", before)
                                 : "use the same card and libraries to go on as it was begun";
    throw InvalidInput(fmt::format(
        "--resume {}: it leads to other bits: {}, or set STOWAGE_ATTENTION=auto to go on with other bits",
        differs, same));
  }
  std::fprintf(stderr, "%s: warning: %s: from here on other bits\n", program_name(options_.program),
               printable_lines(differs).c_str());
}

std::string RunCheckpoints::begin(EngineGroup& engine) {
  if (start_) with_flag("--resume", [&] { start_->load(*graph_, state_access(engine)); });
  if (folder_ && !options_.trains_nothing) start_saver();
  if (options_.patience > 0 && !options_.trains_nothing) start_patience();
  return notes_.empty() ? notes_ : notes_ + '\n';
}

}  // namespace stowage::samples
