#include "samples/options/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "samples/data/text_data.h"
#include "samples/options/initial_sizes.h"
#include "samples/options/option_flags.h"
#include "src/base/written_paths.h"
#include "stowage/coded_activations.h"
#include "stowage/error.h"
#include "tools/choices/model_spec.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

void parse(const RawOptions& raw, Options& options) {
  options.descent = descent_from(raw.schedule).value_or(Descent::cosine);
  options.decayed = raw.decay == "all" ? DecayedParameters::all : DecayedParameters::matrices;
  options.moments = moments_from(raw.moments).value_or(Moments::f32);
  options.model.code_activations = bits_of_coding(raw.code_activations);
  options.export_type = raw.export_type == "as-read" ? SavedType::as_read
                        : raw.export_type == "bf16"  ? SavedType::bf16
                        : raw.export_type == "f32"   ? SavedType::f32
                                                     : SavedType::usual;
  if (raw.evaluate_on != "auto")
    options.evaluate_on = raw.evaluate_on == "cpu" ? EvaluatedOn::cpu : EvaluatedOn::device;
  options.type = raw.type == "bf16" ? DataType::bf16 : raw.type == "fp16" ? DataType::f16 : DataType::f32;
  const PlanChoice choice = stowage::parse(raw.plan);
  options.machine = raw.plan.machine;
  options.budget = {choice.device_memory.value_or(unlimited), choice.host_memory.value_or(unlimited)};
  options.plan = choice.options;
  if (raw.plan.speculate == "always") options.speculate = true;
  options.pageable_fallback = raw.pageable == "auto";
  options.link = with_prefix("--link-bandwidth: ", [&] { return parse_link(raw.link_bandwidth); });
  if (!raw.link_both.empty())
    options.link_both_bytes_per_second =
        with_prefix("--link-both-bandwidth: ", [&] { return parse_link(raw.link_both).bytes_per_second; });
}

// Returns the prompt; "@FILE" stands for the contents of the file.
std::string prompt_of(const std::string& text) {
  return text.starts_with('@') ? read_text(text.substr(1), "--generate") : text;
}

void check_generation(const Options& options) {
  if (!writes_text(options)) return;
  if (options.generate && options.generate_ids)
    throw InvalidInput("--generate and --generate-ids both say what to go on with: give one of them");
  const char* const flag = options.generate ? "--generate" : "--generate-ids";
  const bool trained = !options.checkpoint_folder.empty() || !options.resume_from.empty();
  if (trained == options.init.empty()) return;
  throw InvalidInput(
      trained
          ? fmt::format("{} takes one model: give --checkpoint (or --resume PATH) or --init, not both", flag)
          : fmt::format("{}: which model? give --checkpoint DIR, --resume PATH or --init DIR", flag));
}

// Refuses --optimizer-in-backward with options by which a step may have to be taken back, or
// that it makes useless.
void check_optimizer_in_backward(const Options& options, const RawOptions& raw) {
  if (!options.plan.optimizer_in_backward) return;
  const char* flag = "--optimizer-in-backward";
  if (options.clip != 0)
    throw InvalidInput(
        fmt::format("{}: gradients are clipped by the norm of all of them, which is known behind backward; "
                    "give --clip 0 (now {}), or leave this out",
                    flag, options.clip));
  if (options.type == DataType::f16)
    throw InvalidInput(
        fmt::format("{}: in fp16 a step whose gradients overflow is left out, which is known behind "
                    "backward; give --type bf16, "
                    "or leave this out",
                    flag));
  if (options.plan.policy != Policy::automatic)
    throw InvalidInput(fmt::format("{}: --policy {} updates behind backward; leave one of them out", flag,
                                   to_string(options.plan.policy)));
  if (raw.plan.speculate != "auto")
    throw InvalidInput(
        fmt::format("{}: nothing is speculated then, and --speculate {} does nothing; leave one of them out",
                    flag, raw.plan.speculate));
}

// Checks conditions that no range of a single flag expresses.
void check_together(const Options& options) {
  check_generation(options);
  const bool needs_data = options.program != Program::train_gpt || !copies_weights(options);
  if (options.data.empty() && !writes_text(options) && needs_data) {
    throw InvalidInput("--data FILE is missing: name a text to learn (scripts/train makes one)");
  }
  if (options.resume && options.resume_from.empty() && options.checkpoint_folder.empty())
    throw InvalidInput(
        "--resume without a path takes the newest checkpoint of --checkpoint DIR: give either");
  // CLI11's ranges let "nan" pass.
  const std::map<const char*, double> reals = {{"--learning-rate", options.learning_rate},
                                               {"--weight-decay", options.weight_decay},
                                               {"--beta1", options.beta1},
                                               {"--beta2", options.beta2},
                                               {"--epsilon", options.epsilon},
                                               {"--final-share", options.final_share},
                                               {"--clip", options.clip},
                                               {"--evaluation-share", options.evaluation_share},
                                               {"--temperature", options.temperature},
                                               {"--epochs", options.epochs.value_or(1)},
                                               {"--dropout", options.model.dropout}};
  for (const auto& [flag, value] : reals) {
    if (!std::isfinite(value))
      throw InvalidInput(fmt::format("{}: {} is no number to train with", flag, value));
  }
  if (!is_valid(LossScale{options.loss_scale}))
    throw InvalidInput(fmt::format("--loss-scale {} is no power of two from {} to {}: give one of these",
                                   options.loss_scale, LossScale::least, LossScale::most));
  const ModelConfig& model = options.model;
  if (model.head_width == 0 && model.width % model.heads != 0) {
    throw InvalidInput(fmt::format(
        "--width {} is not divisible by --heads {}: choose a width that is a multiple, such as {}",
        model.width, model.heads, (model.width / model.heads + 1) * model.heads));
  }
  if (!(model.keep_tokens > 0 && model.keep_tokens <= 1))
    throw InvalidInput(
        fmt::format("--keep-tokens {}: give a share of the tokens above 0 and at most 1", model.keep_tokens));
  if (model.batch % model.micro_batches != 0) {
    throw InvalidInput(
        fmt::format("--micro-batches {} does not divide --batch {}: choose a divisor, or another batch",
                    model.micro_batches, model.batch));
  }
  if (!are_gradient_groups(static_cast<std::uint32_t>(model.gradient_groups),
                           static_cast<std::uint32_t>(model.micro_batches))) {
    throw InvalidInput(fmt::format(
        "--gradient-groups {} is no power of two that divides --micro-batches {}: choose one, at most {}",
        model.gradient_groups, model.micro_batches, model.micro_batches & -model.micro_batches));
  }
  if (model.gradient_groups % options.devices != 0)
    throw InvalidInput(
        fmt::format("{} does not divide --gradient-groups {}: choose a power of two, at most {}",
                    devices_given(options), model.gradient_groups, model.gradient_groups));
}

// A flag, and the flag without which it would silently do nothing.
struct Need {
  const char* flag;
  const char* needed;
  const char* or_this = nullptr;  // another flag that does as well
};
constexpr Need needs[] = {{"--checkpoint-every", "--checkpoint"},
                          {"--keep", "--checkpoint"},
                          {"--checkpoint-blocking", "--checkpoint"},
                          {"--keep-best", "--checkpoint"},
                          {"--export-type", "--export"},
                          {"--tokens", "--generate", "--generate-ids"},
                          {"--temperature", "--generate", "--generate-ids"},
                          {"--stop-ids", "--generate-ids"}};
// Outputs of a training, besides its checkpoints.
using Kind = WrittenPaths::Kind;
constexpr std::pair<const char*, Kind> written[] = {{"--log", Kind::text},     {"--trace", Kind::text},
                                                    {"--report", Kind::text},  {"--plan-json", Kind::text},
                                                    {"--weights", Kind::data}, {"--export", Kind::folder}};

using IsGiven = std::function<bool(const char* flag)>;

void check_paths(const CLI::App& app, const IsGiven& given) {
  WrittenPaths paths;
  const auto add = [&](const char* flag, Kind kind) {
    if (given(flag)) paths.add(flag, app.get_option(flag)->as<std::string>(), kind);
  };
  for (const auto& [flag, kind] : written) add(flag, kind);
  add("--checkpoint", Kind::folder);
}

constexpr const char* evaluation_flags[] = {"--evaluation-data", "--evaluation-share", "--evaluation-samples",
                                            "--evaluate-on",     "--keep-best",        "--patience"};

// Gives each of several processes one device.
void count_devices(Options& options, int processes, const IsGiven& given) {
  if (processes == 1 || writes_text(options)) return;
  if (given("--devices") && options.devices != processes)
    throw WrongNumber(
        fmt::format("--devices {} with {} processes, each of which is a device: leave --devices "
                    "out, or start as many processes",
                    options.devices, processes));
  options.devices = options.processes = processes;
}

// Gives each device a gradient group, and each group a micro-batch.
void divide_batch(Options& options, const IsGiven& given) {
  ModelConfig& model = options.model;
  if (!std::has_single_bit(static_cast<std::uint64_t>(options.devices)))
    throw WrongNumber(
        fmt::format("{}: that is no power of two; give 1, 2, 4, 8, 16, 32 or 64", devices_given(options)));
  if (!given("--gradient-groups")) model.gradient_groups = options.devices;
  const auto parts = [](std::int64_t count) { return static_cast<std::uint32_t>(count); };
  if (given("--micro-batches") && !given("--gradient-groups") &&
      !are_gradient_groups(parts(model.gradient_groups), parts(model.micro_batches)))
    throw InvalidInput(fmt::format("{} does not divide --micro-batches {}: give a multiple of it",
                                   devices_given(options), model.micro_batches));
  if (given("--micro-batches")) return;
  model.micro_batches = default_micro_batches(*options.family, model.batch, model.gradient_groups);
  if (model.batch % model.micro_batches != 0)
    throw InvalidInput(fmt::format("{}: --batch {} has no so many equal parts; give a multiple of it",
                                   given("--gradient-groups")
                                       ? fmt::format("--gradient-groups {}", model.micro_batches)
                                       : devices_given(options),
                                   model.batch));
}

// Evaluates at the end if --steps is 0 and any of these flags is given.
void ask_for_evaluation(Options& options, const IsGiven& given) {
  if (options.steps > 0 || options.evaluate_every > 0 || given("--evaluate-every")) return;
  if (std::any_of(std::begin(evaluation_flags), std::end(evaluation_flags), given))
    options.evaluate_every = 1;
}

// `given`: whether the command line has the flag.
void check_needs(const Options& options, const IsGiven& given) {
  for (const Need& need : needs) {
    if (given(need.flag) && !given(need.needed) && (need.or_this == nullptr || !given(need.or_this)))
      throw InvalidInput(fmt::format("{}: this does nothing without {}; give that too, or leave this out",
                                     need.flag, need.needed));
  }
  for (const char* flag : evaluation_flags) {
    // An explicit --evaluate-every 0 is no mistake: it switches off what a script asks for.
    if (given(flag) && options.evaluate_every == 0 && !given("--evaluate-every"))
      throw InvalidInput(
          fmt::format("{}: nothing is evaluated without --evaluate-every N; give that too", flag));
  }
  if (options.export_type == SavedType::as_read && options.init.empty())
    throw InvalidInput("--export-type as-read: without --init nothing was read; give bf16 or f32");
  if (options.patience > 0 && options.evaluate_every == 0)
    throw InvalidInput("--patience: nothing is evaluated with --evaluate-every 0; give another number");
  if (options.keep_best && options.evaluate_every == 0)
    throw InvalidInput("--keep-best: nothing is evaluated with --evaluate-every 0; give another number");
  if (given("--loss-scale") && options.type != DataType::f16)
    throw InvalidInput(
        "--loss-scale: gradients are scaled in fp16 alone; give --type fp16, or leave this out");
  if (options.epochs && given("--steps"))
    throw InvalidInput("--epochs and --steps both say how long to train: give one of them");
  for (const auto& [flag, kind] : written) {
    if (writes_text(options) && given(flag))
      throw InvalidInput(
          fmt::format("{}: {} trains nothing and writes to standard output alone; leave "
                      "one of them out",
                      flag, options.generate ? "--generate" : "--generate-ids"));
  }
}

// Returns the message about the first word that no flag takes, with the flags that it may
// be the beginning of.
std::string unexpected(const CLI::App& app, const std::vector<std::string>& words) {
  const auto flag =
      std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with("-"); });
  const std::string word = flag != words.end() ? *flag : words.empty() ? "" : words.back();
  std::string alike;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (word.size() > 2 && name.starts_with(word)) alike += (alike.empty() ? "" : " or ") + name;
  }
  return fmt::format("{}: there is no such {}{}", word, flag != words.end() ? "flag" : "argument",
                     alike.empty() ? "" : ", write " + alike + " in full");
}

std::string about(Program program) {
  return fmt::format(
      "{}, inside a device memory that may be several times too small for it.\n"
      "Losses and weights are the same to the last bit whatever the memory, the buckets and the threads.",
      program == Program::train_bert ? "Pre-trains a BERT (masked tokens and next sentences) on a text"
                                     : "Trains a GPT on a text or on token shards");
}

std::string examples(Program program) {
  if (program == Program::train_bert)
    return "Examples:\n"
           "  train_bert --data text.txt --device-memory 64MiB\n"
           "  train_bert --data text.txt --init bert/ --tokenizer bert/ --export tuned/\n\n";
  return "Examples:\n"
         "  train_gpt --data text.txt --device-memory 64MiB --evaluate-every 100 --checkpoint run1\n"
         "  train_gpt --data 'shards/*.bin' --tokenizer gpt2/ --init gpt2/\n"
         "  train_gpt --data text.txt --steps 0 --checkpoint run1 --resume --evaluation-data other.txt\n"
         "  train_gpt --generate 'In the beginning' --checkpoint run1\n\n";
}

Options default_options(Program program) {
  Options options;
  options.program = program;
  if (program == Program::train_gpt) return options;
  options.family = &bert_family;
  // These values learn both tasks in some minutes on two cores.
  options.model = bert_family.defaults;
  options.model.layers = 2;
  options.model.width = 128;
  options.model.heads = 4;
  options.model.sequence = 32;
  options.model.batch = 64;
  options.steps = 2500;
  options.warmup = 100;
  // Values of BERT's own pre-training: google-research/bert, optimization.py.
  options.weight_decay = 0.01;
  options.beta2 = 0.999;
  options.epsilon = 1e-6;
  options.evaluation_samples = 256;
  return options;
}

// CLI11 separates some of its sentences by line breaks.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

const char* program_name(Program program) {
  return program == Program::train_bert ? "train_bert" : "train_gpt";
}

bool copies_weights(const Options& options) {
  if (!options.trains_nothing || !options.resume || options.plan_only) return false;
  const bool computes = options.evaluate_every > 0 || options.sample_tokens > 0;
  const bool reports = !options.plan_file.empty() || !options.log_file.empty() ||
                       !options.trace_file.empty() || !options.report_file.empty();
  return !computes && !reports;
}

std::string devices_given(const Options& options) {
  return options.processes > 1 ? fmt::format("a launch of {} processes", options.processes)
                               : fmt::format("--devices {}", options.devices);
}

CommandLine parse_command_line(int count, const char* const* arguments, Program which, int processes) {
  CommandLine result;
  Options& options = result.options = default_options(which);
  const std::string program = program_name(which);
  RawOptions raw;
  CLI::App app{about(which), program};
  // The last of a repeated flag counts, so that a script's flags can be overridden behind them.
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.get_formatter()->column_width(34);
  app.footer(
      examples(which) +
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0 done, 2 the command line, a file or a budget must change, 1 the run failed,\n"
      "130 Ctrl-C or SIGTERM (before the first step at once; else the step is finished and everything\n"
      "written, and a second one ends at once), and\n"
      "so a terminal that is closed or a pipe that nobody reads any more.");
  add_flags(app, options, raw);
  try {
    app.parse(count, arguments);
  } catch (const CLI::CallForHelp&) {
    result.help = app.help();
    return result;
  } catch (const CLI::ExtrasError&) {
    throw InvalidInput(unexpected(app, app.remaining()) + "; " + program +
                       " --help lists the flags and what they take");
  } catch (const CLI::ParseError& error) {
    throw InvalidInput(one_line(error.what()) + "; " + program +
                       " --help lists the flags and what they take");
  }
  const auto given = [&](const char* flag) {
    const CLI::Option* option = app.get_option_no_throw(flag);
    return option != nullptr && option->count() > 0;
  };
  check_paths(app, given);
  parse(raw, options);
  options.resume = given("--resume");
  for (const char* flag : {"--learning-rate", "--schedule", "--final-share", "--clip", "--head-chunk",
                           "--table-rows", "--beta1", "--beta2", "--epsilon", "--micro-batches"})
    if (given(flag)) options.changed.insert(flag);
  if (given("--generate")) options.generate = prompt_of(raw.prompt);
  if (given("--generate-ids")) options.generate_ids = raw.prompt_ids;
  if (given("--stop-ids")) options.stop_ids = raw.stop_ids;
  take_initial_sizes(options, {given("--layers"), given("--width"), given("--heads"), given("--sequence"),
                               given("--dropout"), given("--table-rows"), given("--type")});
  if (given("--table-rows") && options.family->defaults.table_rows == 0)
    throw InvalidInput(
        fmt::format("--table-rows: the tables of {} are whole; leave it out", options.family->title));
  count_devices(options, processes, given);
  divide_batch(options, given);
  options.trains_nothing = options.steps == 0;
  if (options.patience > 0 && !options.checkpoint_folder.empty()) options.keep_best = true;
  ask_for_evaluation(options, given);
  check_needs(options, given);
  check_together(options);
  check_optimizer_in_backward(options, raw);
  return result;
}

}  // namespace stowage::samples
