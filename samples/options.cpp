#include "samples/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <map>

#include "samples/model_files.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

// What CLI11 fills in before the words are understood.
struct Words {
  std::string type = "f32";
  std::string device_memory = "unlimited";
  std::string host_memory = "unlimited";
  std::string bucket_size = "auto";
  std::string link_bandwidth = "8GB/s";
  std::string link_both;
  std::string policy = "auto";
  std::string decay = "matrices";
  std::string schedule = "cosine";
};

constexpr std::int64_t most = 1 << 24;

// Empty when `text` is a seed. CLI11 itself would turn one that is too large into the largest.
std::string seed_error(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return text + " is no whole number from 0 to 18446744073709551615";
}

// A check without its say in the help, which states the flag's sense instead.
CLI::Validator quiet(CLI::Validator validator) { return validator.description(""); }

void add_model(CLI::App& app, GptConfig& model, Words& words) {
  const auto size = quiet(CLI::Range(std::int64_t{1}, most));
  const auto add = [&](const char* flag, std::int64_t& value, const char* text) {
    app.add_option(flag, value, text)->group("Model")->check(size)->type_name("N");
  };
  add("--layers", model.layers, "Transformer layers");
  add("--width", model.width, "features per token, a multiple of --heads");
  add("--heads", model.heads, "attention heads");
  add("--sequence", model.sequence, "bytes of text per sample");
  add("--batch", model.batch, "samples per step");
  add("--micro-batches", model.micro_batches, "equal parts of the batch, gradients summed over them");
  app.add_option("--dropout", model.dropout, "probability of dropping an activation")
      ->group("Model")
      ->check(quiet(CLI::Range(0.0, 0.99)))
      ->type_name("P");
  app.add_option("--type", words.type, "of weights and activations: f32, or bf16 (on a CUDA card)")
      ->group("Model")
      ->check(quiet(CLI::IsMember({"f32", "bf16"})))
      ->type_name("NAME");
}

void add_training(CLI::App& app, Options& options, Words& words) {
  const char* group = "Training";
  const auto steps = quiet(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  const auto real = quiet(CLI::Range(0.0, 1e6));
  app.add_option("--data", options.data, "text to learn, any file of bytes (required)")
      ->group(group)
      ->type_name("FILE");
  app.add_option(
         "--init", options.init,
         "start from a GPT-2 of Hugging Face, with its sizes: a folder of config.json and safetensors, or "
         "one of its files; the text's bytes are its tokens 0 to 255")
      ->group(group)
      ->type_name("DIR|FILE");
  app.add_option("--steps", options.steps, "training steps")->group(group)->check(steps)->type_name("N");
  app.add_option("--learning-rate", options.learning_rate, "its peak, behind the warm-up")
      ->group(group)
      ->check(real)
      ->type_name("X");
  app.add_option("--warmup", options.warmup, "steps of linear warm-up")
      ->group(group)
      ->check(steps)
      ->type_name("N");
  app.add_option("--schedule", words.schedule,
                 "how the rate falls behind the warm-up: cosine, linear, or constant")
      ->group(group)
      ->check(quiet(CLI::IsMember({"cosine", "linear", "constant"})))
      ->type_name("NAME");
  app.add_option("--final-share", options.final_share,
                 "of --learning-rate, that a cosine or a line ends in at the last step")
      ->group(group)
      ->check(quiet(CLI::Range(0.0, 1.0)))
      ->type_name("X");
  app.add_option("--weight-decay", options.weight_decay, "AdamW's, on what --decay says")
      ->group(group)
      ->check(real)
      ->type_name("X");
  app.add_option("--decay", words.decay, "matrices: not biases and the norms' gains; or all parameters")
      ->group(group)
      ->check(quiet(CLI::IsMember({"matrices", "all"})))
      ->type_name("NAME");
  app.add_option("--clip", options.clip, "largest global gradient norm, 0: never clip")
      ->group(group)
      ->check(real)
      ->type_name("X");
  app.add_option("--seed", options.seed, "of weights, batches, dropout and samples")
      ->group(group)
      ->check(CLI::Validator(seed_error, ""))
      ->type_name("N");
}

void add_machine(CLI::App& app, Options& options, Words& words) {
  const char* group = "Machine";
  app.add_option("--device", options.device, "auto: a CUDA card if one answers; cuda, cuda:N, or simulated")
      ->group(group)
      ->type_name("NAME");
  app.add_option("--machine", options.machine,
                 "plan for this machine: a name that `stowage plan --machine list` shows, or a file that "
                 "`stowage calibrate` wrote")
      ->group(group)
      ->type_name("NAME|FILE");
  app.add_option("--device-memory", words.device_memory,
                 "device bytes to train in: 64MiB, 1.5G, 4096, unlimited")
      ->group(group)
      ->type_name("SIZE");
  app.add_option("--host-memory", words.host_memory, "host bytes for what is offloaded, or unlimited")
      ->group(group)
      ->type_name("SIZE");
  app.add_option("--link-bandwidth", words.link_bandwidth,
                 "of the simulated link, each way: 8GB/s, or unthrottled")
      ->group(group)
      ->type_name("RATE");
  app.add_option("--link-both-bandwidth", words.link_both,
                 "of each way while both are busy; without it the same as alone")
      ->group(group)
      ->type_name("RATE");
  app.add_option("--threads", options.threads, "CPU threads, 0: all cores")
      ->group(group)
      ->check(quiet(CLI::Range(0, 4096)))
      ->type_name("N");
}

void add_plan(CLI::App& app, Options& options, Words& words) {
  const char* group = "Plan";
  std::vector<std::string> names;
  for (const Policy policy : every_policy) names.emplace_back(to_string(policy));
  app.add_option("--policy", words.policy,
                 "auto: the fastest plan that fits; none: everything on the device; emulated: zero-offload, "
                 "zero-infinity, gemini-cpu, layer-stream, checkpoint")
      ->group(group)
      ->check(quiet(CLI::IsMember(names)))
      ->type_name("NAME");
  app.add_option("--bucket-size", words.bucket_size,
                 "bytes per parameter transfer, auto: from the link's speed")
      ->group(group)
      ->type_name("SIZE");
  app.add_flag("--plan-only", options.plan_only, "print what the plan would do, then stop");
  app.get_option("--plan-only")->group(group);
  app.add_flag("--verify", options.verify,
               "compare the bits of every recomputed tensor with those of its first making; slow")
      ->group(group);
  app.add_option("--plan-json", options.plan_file, "write the plan")->group(group)->type_name("FILE");
}

void add_checkpoints(CLI::App& app, Options& options) {
  const char* group = "Checkpoints";
  const auto some = quiet(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app.add_option("--checkpoint", options.checkpoint_folder,
                 "save all that the run needs to go on to the same bits, in the background and at the end")
      ->group(group)
      ->type_name("DIR");
  app.add_option("--checkpoint-every", options.checkpoint_every, "steps from one checkpoint to the next")
      ->group(group)
      ->check(some)
      ->type_name("N");
  app.add_option("--keep", options.keep, "how many of the newest checkpoints stay")
      ->group(group)
      ->check(some)
      ->type_name("N");
  app.add_flag("--checkpoint-blocking", options.checkpoint_blocking,
               "make steps wait for checkpoints; takes no copy of the state on the host")
      ->group(group);
  app.add_option("--resume", options.resume_from,
                 "go on from this checkpoint, or from the newest in --checkpoint DIR")
      ->group(group)
      ->expected(0, 1)
      ->type_name("[PATH]");
}

void add_output(CLI::App& app, Options& options) {
  const char* group = "Output";
  app.add_option("--log", options.log_file, "write one JSON object per step")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--trace", options.trace_file,
                 "write the last step, planned and measured, for ui.perfetto.dev")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--report", options.report_file,
                 "write one HTML page: loss, learning rate, norm and step time by step, and the plan")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--weights", options.weights_file,
                 "write the final parameters: a line of JSON (names, shapes, offsets), then raw bytes")
      ->group(group)
      ->type_name("FILE");
  app.add_option("--export", options.export_folder,
                 "write the final model for Hugging Face into a new folder: safetensors and config.json")
      ->group(group)
      ->type_name("DIR");
  app.add_option("--sample", options.sample_bytes, "bytes of text to generate after training")
      ->group(group)
      ->check(quiet(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 30)))
      ->type_name("N");
}

// Runs `parse`, and puts the flag before what it complains of.
template <class Parse>
auto named(const char* flag, Parse parse) {
  try {
    return parse();
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}: {}", flag, error.what()));
  }
}

Bytes parse_bucket_size(const std::string& text) {
  if (text == "auto") return 0;
  const Bytes bytes = parse_bytes(text);
  if (bytes == 0) throw InvalidInput("\"0\" is no bucket size; give at least 1 byte, or auto");
  return bytes;
}

void understand(const Words& words, Options& options) {
  options.descent = descent_from(words.schedule).value_or(Descent::cosine);
  options.decayed = words.decay == "all" ? DecayedParameters::all : DecayedParameters::matrices;
  options.type = words.type == "bf16" ? DataType::bf16 : DataType::f32;
  options.budget.device = named("--device-memory", [&] { return parse_limit(words.device_memory); });
  options.budget.host = named("--host-memory", [&] { return parse_limit(words.host_memory); });
  options.link = named("--link-bandwidth", [&] { return parse_link(words.link_bandwidth); });
  if (!words.link_both.empty())
    options.link_both_bytes_per_second =
        named("--link-both-bandwidth", [&] { return parse_link(words.link_both).bytes_per_second; });
  options.plan.policy = policy_from(words.policy).value_or(Policy::automatic);
  options.plan.bucket_bytes = named("--bucket-size", [&] { return parse_bucket_size(words.bucket_size); });
}

// What no single flag's range says.
void check_together(const Options& options) {
  if (options.data.empty()) {
    throw InvalidInput("--data FILE is missing: name a text to learn (scripts/train makes one)");
  }
  if (options.resume && options.resume_from.empty() && options.checkpoint_folder.empty())
    throw InvalidInput(
        "--resume without a path takes the newest checkpoint of --checkpoint DIR: give either");
  // CLI11's ranges let "nan" pass.
  const std::map<const char*, double> reals = {{"--learning-rate", options.learning_rate},
                                               {"--weight-decay", options.weight_decay},
                                               {"--final-share", options.final_share},
                                               {"--clip", options.clip},
                                               {"--dropout", options.model.dropout}};
  for (const auto& [flag, value] : reals) {
    if (!std::isfinite(value))
      throw InvalidInput(fmt::format("{}: {} is no number to train with", flag, value));
  }
  const GptConfig& model = options.model;
  if (model.width % model.heads != 0) {
    throw InvalidInput(fmt::format(
        "--width {} is not divisible by --heads {}: choose a width that is a multiple, such as {}",
        model.width, model.heads, (model.width / model.heads + 1) * model.heads));
  }
  if (model.batch % model.micro_batches != 0) {
    throw InvalidInput(
        fmt::format("--micro-batches {} does not divide --batch {}: choose a divisor, or another batch",
                    model.micro_batches, model.batch));
  }
}

// CLI11 separates some of its sentences by line breaks.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

Bytes parse_limit(const std::string& text) { return text == "unlimited" ? unlimited : parse_bytes(text); }

Link parse_link(const std::string& text) {
  if (text == "unthrottled") return Link::unthrottled();
  std::string size = text;
  if (size.ends_with("/s")) size.resize(size.size() - 2);
  Bytes rate = 0;
  try {
    rate = parse_bytes(size);
  } catch (const InvalidInput&) {
    rate = 0;  // told below, with what a rate looks like
  }
  if (rate == 0) {
    throw InvalidInput(fmt::format(
        "\"{}\" is no rate; write for example 8GB/s, 500MB/s, bytes per second, or unthrottled", text));
  }
  return Link{.bytes_per_second = static_cast<double>(rate), .latency_seconds = 10e-6, .throttled = true};
}

CommandLine parse_command_line(int count, const char* const* arguments) {
  CommandLine result;
  Words words;
  CLI::App app{
      "Trains a byte-level GPT on a text, inside a device memory that may be several times too small for "
      "it.\n"
      "Losses and weights are the same to the last bit whatever the memory, the buckets and the threads.",
      "train_gpt"};
  // The last of a repeated flag counts, so that a script's flags can be overridden behind them.
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.get_formatter()->column_width(34);
  app.footer(
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0 done, 2 the command line, a file or a budget must change, 1 the run failed,\n"
      "130 Ctrl-C or SIGTERM (the step is finished and everything written; a second one ends at once).");
  add_training(app, result.options, words);
  add_model(app, result.options.model, words);
  add_machine(app, result.options, words);
  add_plan(app, result.options, words);
  add_checkpoints(app, result.options);
  add_output(app, result.options);
  try {
    app.parse(count, arguments);
  } catch (const CLI::CallForHelp&) {
    result.help = app.help();
    return result;
  } catch (const CLI::ParseError& error) {
    throw InvalidInput(one_line(error.what()) + "; train_gpt --help lists the flags and what they take");
  }
  understand(words, result.options);
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  result.options.resume = given("--resume");
  for (const char* flag : {"--learning-rate", "--schedule", "--final-share", "--clip"})
    if (given(flag)) result.options.changed.insert(flag);
  take_initial_sizes(result.options, {given("--layers"), given("--width"), given("--heads"),
                                      given("--sequence"), given("--dropout")});
  check_together(result.options);
  return result;
}

}  // namespace stowage::samples
