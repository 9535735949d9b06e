#include "tools/cli/plan_options.h"

#include <fmt/format.h>

#include "stowage/error.h"
#include "tools/choices/machine_choice.h"

namespace stowage {
namespace {

void add_model(CLI::App& plan, PlanCommand& command) {
  const char* group = "What to plan: one of";
  plan.add_option("GRAPH", command.graph_file, "a training step saved as JSON, or a trace of one")
      ->type_name("FILE");
  ModelWords& model = command.model;
  const auto add = [&](const char* flag, std::string& word, const char* text, const char* type) {
    return plan.add_option(flag, word, text)->group(group)->type_name(type);
  };
  add("--gpt", model.gpt, "LAYERSxWIDTH, gpt2[-medium|-large|-xl], 1.3b, 2.7b, 6.7b, 13b, 30b, 66b, 175b",
      "MODEL");
  add("--bert", model.bert, "LAYERSxWIDTH, base or large", "MODEL");
  plan.add_flag("--max-model", command.max_model, "the largest GPT, between 12x768 and 175b, that fits")
      ->group(group);
  group = "Its shape";
  add("--heads", model.heads, "attention heads (the model's own, or width / 64)", "N");
  add("--sequence", model.sequence, "tokens per sample (1024, of bert 512)", "N");
  add("--batch", model.batch, "samples per step (8)", "N");
  add("--micro-batches", model.micro_batches,
      "equal parts of the batch, gradients summed over them (as many as gradient groups; of bert 2 at least)",
      "N");
  add("--gradient-groups", model.gradient_groups,
      "groups of micro-batches whose sums are added in a tree, a power of two (as many as devices)", "N");
  add("--devices", model.devices,
      "devices that train it together, each on its part of the batch: a power of two (1)", "N");
  add("--vocabulary", model.vocabulary, "tokens there are (50304, of bert 30528)", "N");
  add("--head-chunk", model.head_chunk,
      "tokens whose logits exist at once: more are faster and take more memory (2048 to 8192, by width and "
      "batch)",
      "N");
  add("--moments", model.moments,
      "type of AdamW's moments of matrices: f32 (as it is), bf16 or 8bit, which give other numbers", "NAME");
  add("--type", model.type, "f32, bf16 or fp16 (bf16 where --machine is a card that has it, else f32)",
      "NAME");
}

void add_machine(CLI::App& plan, PlanWords& words) {
  const char* group = "Machine";
  const auto add = [&](const char* flag, std::string& word, const char* text, const char* type) {
    return plan.add_option(flag, word, text)->group(group)->type_name(type);
  };
  add("--machine", words.command.machine,
      "a name (`list` shows them), or a file that stowage calibrate wrote", "NAME|FILE");
  add("--device-memory", words.device,
      "device budget, of each device: SIZE or unlimited (the machine's, else unlimited)", "SIZE");
  add("--host-memory", words.host,
      "host budget, of all --devices together, of which each has an equal part: SIZE or unlimited (15/16 of "
      "what the machine's file says, else unlimited)",
      "SIZE");
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (Policy policy : every_policy) names.emplace_back(to_string(policy));
  return names;
}

void add_answer(CLI::App& plan, PlanWords& words) {
  const char* group = "Plan and answer";
  const auto add = [&](const char* flag, std::string& word, const char* text, const char* type) {
    return plan.add_option(flag, word, text)->group(group)->type_name(type);
  };
  add("--policy", words.policy,
      "auto: the fastest plan that fits; none: everything on the device; emulated: zero-offload, "
      "zero-infinity, "
      "gemini-cpu, layer-stream, checkpoint, fsdp2",
      "NAME")
      ->check(CLI::IsMember(policy_names()).description(""))
      ->capture_default_str();
  add("--bucket-size", words.bucket, "bytes per parameter transfer: SIZE or auto", "SIZE")
      ->capture_default_str();
  add("--speculate", words.speculate,
      "updates on the host before the norm of all gradients is known: auto, where that makes the step "
      "faster; "
      "or off",
      "NAME")
      ->check(CLI::IsMember({"auto", "off"}).description(""))
      ->capture_default_str();
  plan.add_flag(
          "--optimizer-in-backward", words.command.options.optimizer_in_backward,
          "gradients are not clipped, and updates on the host may be made for good as soon as their "
          "gradients are there, which then need no host memory of their own; a step that fails loses the "
          "state")
      ->group(group);
  add("--sweep", words.command.sweep,
      "memory[=N]: N budgets from the minimum to the need; batch[=1,2,4]: batch sizes; devices[=1,2,4]: "
      "numbers of devices",
      "WHAT");
  add("--plan-json", words.command.plan_file, "write the plan", "FILE");
  add("--report", words.command.report_file, "write one HTML page: memory map, lanes, buckets, budgets",
      "FILE");
  plan.add_option("--compare", words.command.compare, "two files of --plan-json, side by side")
      ->group(group)
      ->expected(2)
      ->type_name("FILE");
  plan.add_flag("--json", words.command.json, "answer as JSON")->group(group);
}

// Runs `parse`, and puts the option before what it complains of.
template <class Parse>
auto named(const char* option, Parse parse) {
  try {
    return parse();
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}: {}", option, error.what()));
  }
}

Bytes parse_limit(const std::string& text) { return text == "unlimited" ? unlimited : parse_bytes(text); }

Bytes parse_bucket(const std::string& text) {
  if (text == "auto") return 0;
  const Bytes bytes = parse_bytes(text);
  if (bytes == 0) throw InvalidInput("\"0\" is no bucket size; give at least 1 byte, or auto");
  return bytes;
}

}  // namespace

CLI::App* add_plan(CLI::App& app, PlanWords& words) {
  CLI::App* plan = app.add_subcommand("plan", "Does a training step fit, and at what price");
  plan->footer(
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0 it fits, 2 it does not or the command line must change.");
  plan->get_formatter()->column_width(34);
  add_model(*plan, words.command);
  add_machine(*plan, words);
  add_answer(*plan, words);
  return plan;
}

PlanCommand understand(const PlanWords& words) {
  PlanCommand command = words.command;
  command.machines = machines_folder();
  if (!words.device.empty())
    command.device_memory = named("--device-memory", [&] { return parse_limit(words.device); });
  if (!words.host.empty())
    command.host_memory = named("--host-memory", [&] { return parse_limit(words.host); });
  command.options.bucket_bytes = named("--bucket-size", [&] { return parse_bucket(words.bucket); });
  command.options.policy = policy_from(words.policy).value_or(Policy::automatic);
  command.options.settings.speculates = words.speculate != "off";
  command.model.clips = !command.options.optimizer_in_backward;
  if (command.options.optimizer_in_backward && words.speculate == "off")
    throw InvalidInput(
        "--optimizer-in-backward makes updates early, which --speculate off forbids: leave one out");
  return command;
}

}  // namespace stowage
