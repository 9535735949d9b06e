#include "samples/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

constexpr const char* steps_field = "training.steps";

// Runs `action`, and puts the flag before what it complains of.
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

Bytes copy_bytes(const Options& options, const Graph& graph) {
  if (options.checkpoint_folder.empty() || options.checkpoint_blocking) return 0;
  return checkpoint_bytes(checkpoint_tensors(graph));
}

}  // namespace

std::map<std::string, std::string> configuration_of(const Options& options,
                                                    const std::map<std::string, std::string>& task) {
  const GptConfig& model = options.model;
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
      {"model.head_tokens", exact(model.head_tokens)},
      {"optimizer.kind", "adamw"},
      {"optimizer.beta1", exact(optimizer.beta1)},
      {"optimizer.beta2", exact(optimizer.beta2)},
      {"optimizer.epsilon", exact(optimizer.epsilon)},
      {"optimizer.weight_decay", exact(optimizer.weight_decay)},
      {"optimizer.clip", exact(optimizer.clip)},
      {"training.learning_rate", exact(options.learning_rate)},
      {"training.warmup", exact(options.warmup)},
      {steps_field, exact(options.steps)},
      {"training.seed", exact(options.seed)}};
  result.insert(task.begin(), task.end());
  return result;
}

Budget budget_beside_copy(const Options& options, const Graph& graph) {
  Budget budget = options.budget;
  const Bytes copy = copy_bytes(options, graph);
  if (budget.host == unlimited || copy == 0) return budget;
  if (budget.host <= copy)
    throw InvalidInput(
        fmt::format("--host-memory {}: the copy of the state that checkpoints are written from "
                    "takes {} of it; give more, or add --checkpoint-blocking",
                    format_bytes(budget.host), format_bytes(copy)));
  budget.host -= copy;
  return budget;
}

RunCheckpoints::RunCheckpoints(const Options& options, const Task& task, const Graph& graph)
    : options_(options), task_(task), graph_(graph) {
  if (options.plan_only) return;
  configuration_ = configuration_of(options, task.configuration());
  if (!options.checkpoint_folder.empty())
    with_flag("--checkpoint", [&] { folder_.emplace(options.checkpoint_folder, options.keep); });
  if (options.resume) with_flag("--resume", [&] { take_start(); });
  if (options.resume || !folder_) return;
  const auto there = list_checkpoints(folder_->path());
  if (!there.empty())
    throw InvalidInput(
        fmt::format("--checkpoint {}: there are checkpoints in it, the newest of step {}; add "
                    "--resume to go on from that, or name another folder",
                    options.checkpoint_folder, there.front().step));
}

void RunCheckpoints::take_start() {
  if (!options_.resume_from.empty())
    start_.emplace(options_.resume_from);
  else
    start_ = open_newest_checkpoint(folder_->path());
  if (!start_) {
    notes_ = fmt::format("resume        no checkpoint in {} yet: from the beginning\n", folder_->path());
    return;
  }
  // Training longer than was meant is a choice; the learning rate follows the new number from here on.
  std::map<std::string, std::string> wanted = configuration_;
  const auto stored = start_->state().configuration.find(steps_field);
  if (stored != start_->state().configuration.end()) wanted[steps_field] = stored->second;
  start_->require_configuration(wanted);
  start_->require_graph(graph_);
  saved_ = first_step();
  if (first_step() > options_.steps)
    throw InvalidInput(fmt::format("{}: it is of step {}, and --steps is {}; give more steps",
                                   start_->folder(), first_step(), options_.steps));
  notes_ = fmt::format("resume        {}: step {} of {}\n", start_->folder(), first_step(), options_.steps);
  if (wanted != configuration_)
    notes_ += fmt::format(
        "              --steps was {} and is {}: from here on other learning rates, and other bits\n",
        wanted[steps_field], options_.steps);
}

std::string RunCheckpoints::begin(Engine& engine) {
  if (start_) with_flag("--resume", [&] { start_->load(graph_, state_access(engine)); });
  if (folder_) {
    saver_.emplace(*folder_, graph_, options_.checkpoint_blocking ? Saving::blocking : Saving::background);
    notes_ += fmt::format("checkpoints   {}: every {} steps, the last {} kept; {}\n", folder_->path(),
                          options_.checkpoint_every, options_.keep,
                          options_.checkpoint_blocking
                              ? "steps wait for them"
                              : "a copy of " + format_bytes(saver_->copy_bytes()) + " on the host");
  }
  return notes_.empty() ? notes_ : notes_ + '\n';
}

void RunCheckpoints::after_step(Engine& engine) {
  if (!saver_) return;
  tell_failures();
  if (engine.completed_steps() % options_.checkpoint_every == 0) save(engine);
}

void RunCheckpoints::finish(Engine& engine) {
  if (!saver_) return;
  if (engine.completed_steps() != saved_) save(engine);
  saver_->finish();
  tell_failures();
}

void RunCheckpoints::save(Engine& engine) {
  CheckpointState state;
  state.step = saved_ = engine.completed_steps();
  state.seed = options_.seed;
  state.data_position = task_.position(state.step);
  state.configuration = configuration_;
  saver_->save(std::move(state), state_access(engine));
}

void RunCheckpoints::tell_failures() {
  for (const std::string& failure : saver_->take_failures()) {
    failed_ = true;
    std::fprintf(stderr, "%s: warning: %s\n", program_name(options_.kind), failure.c_str());
  }
}

void RunCheckpoints::require_saved() const {
  if (!failed_) return;
  throw Error(
      fmt::format("--checkpoint {}: the run is done, but not all its checkpoints could be written; see "
                  "the warnings above",
                  options_.checkpoint_folder));
}

}  // namespace stowage::samples
