#include "tools/cli/plan_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "src/base/output_file.h"
#include "src/machine/chosen_machine.h"
#include "stowage/error.h"
#include "stowage/machine_file.h"
#include "stowage/trace.h"
#include "tools/choices/machine_choice.h"
#include "tools/cli/files.h"
#include "tools/cli/largest_shape.h"
#include "tools/cli/micro_batch_choice.h"
#include "tools/cli/model_options.h"
#include "tools/cli/plan_compare.h"
#include "tools/console/text.h"

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
  add_model_options(plan, group, model);
  plan.add_flag("--max-model", command.max_model, "the largest GPT, between 12x768 and 175b, that fits")
      ->group(group);
  group = "Its shape";
  add_shape_options(plan, group, model);
  add("--micro-batches", model.micro_batches,
      "equal parts of the batch, gradients summed over them (as many as gradient groups; of bert 2 at "
      "least), or auto: plans 1 to 8 on each device, in each order, and answers for the fastest",
      "N|auto");
  add("--gradient-groups", model.gradient_groups,
      "groups of micro-batches whose sums are added in a tree, a power of two (as many as devices)", "N");
  add("--devices", model.devices,
      "devices that train it together, each on its part of the batch: a power of two (1)", "N");
}

void add_answer(CLI::App& plan, const char* group, PlanCommand& command) {
  const auto add = [&](const char* flag, std::string& word, const char* text, const char* type) {
    plan.add_option(flag, word, text)->group(group)->type_name(type);
  };
  add("--sweep", command.sweep,
      "memory[=N]: N budgets from the minimum to the need; batch[=1,2,4]: batch sizes; devices[=1,2,4]: "
      "numbers of devices",
      "WHAT");
  add("--plan-json", command.plan_file, "write the plan", "FILE");
  add("--report", command.report_file, "write one HTML page: memory map, lanes, buckets, budgets", "FILE");
  plan.add_option("--compare", command.compare, "two files of --plan-json, side by side")
      ->group(group)
      ->expected(2)
      ->type_name("FILE");
  plan.add_flag("--json", command.json, "answer as JSON")->group(group);
}

constexpr std::uintmax_t largest_file = 1ULL << 30;

using Json = nlohmann::ordered_json;

std::string line(const Json& json) { return json.dump(1) + '\n'; }

// The machine to plan for, and its usual type.
struct Source {
  std::optional<MachineFile> machine;
  DataType type = DataType::f32;  // type if --type is not given
};

Source source_of(const PlanCommand& command) {
  Source source;
  if (command.machine.empty()) return source;
  source.machine = read_machine(command.machine, command.machines);
  source.type = usual_type(*source.machine);
  return source;
}

// The files that are written.
struct PlanFiles {
  explicit PlanFiles(const PlanCommand& command)
      : plan("--plan-json", command.plan_file, Writing::whole),
        report("--report", command.report_file, Writing::whole) {}
  OutputFile plan;
  OutputFile report;
};

bool names_a_model(const ModelWords& words) {
  return !words.gpt.empty() || !words.bert.empty() || !words.model.empty();
}

// Returns whether the words ask for every kind of codes of activations, and not for one.
bool asks_for_all_codes(const PlanCommand& command) { return command.model.code_activations == "auto"; }

void require_one_subject(const PlanCommand& command) {
  const int subjects = (command.graph_file.empty() ? 0 : 1) + (command.model.gpt.empty() ? 0 : 1) +
                       (command.model.bert.empty() ? 0 : 1) + (command.model.model.empty() ? 0 : 1) +
                       (command.max_model ? 1 : 0);
  if (subjects == 0)
    throw InvalidInput(
        "nothing to plan: give a graph or trace file, --model NAME, --gpt LAYERSxWIDTH, --bert base, or "
        "--max-model; "
        "stowage plan --help lists the options");
  if (subjects > 1)
    throw InvalidInput(
        "a graph file, --model, --gpt, --bert and --max-model each say what to plan; give one of them");
  const bool sweeps = !command.sweep.empty();
  if ((sweeps || command.max_model) && asks_for_micro_batches(command.model))
    throw InvalidInput(fmt::format(
        "--micro-batches auto: {0} asks about one number of micro-batches; give a number, or leave out {0}",
        sweeps ? "--sweep" : "--max-model"));
  const bool all_codes = asks_for_all_codes(command);
  if (!sweeps && !all_codes) return;
  const char* const several = all_codes ? "--code-activations auto" : "--sweep";
  for (const auto& [asks, other] : {std::pair{command.max_model, "--max-model"},
                                    {sweeps && all_codes, "--sweep"},
                                    {asks_for_micro_batches(command.model), "--micro-batches auto"}})
    if (asks) throw InvalidInput(fmt::format("{} and {} are two questions; ask one of them", several, other));
  if (!command.plan_file.empty() || !command.report_file.empty())
    throw InvalidInput(fmt::format("{}: {} has several plans; leave one of them out",
                                   command.plan_file.empty() ? "--report" : "--plan-json", several));
}

Machine rates_for(const PlanCommand& command, const Source& source, DataType type, std::int64_t devices) {
  if (source.machine) return machine_for(*source.machine, type, static_cast<int>(devices));
  if (devices > 1)
    throw InvalidInput(fmt::format(
        "--devices {}: how they reach each other is not known; give --machine, such as 4x-rtx4090", devices));
  return command.rates;
}

// Sets the rates of each of `devices` devices, and their budget.
void take_devices(const PlanCommand& command, const Source& source, DataType type, std::int64_t devices,
                  PlanQuestion& question) {
  question.rates = rates_for(command, source, type, devices);
  question.take_budget(command.device_memory, command.host_memory, static_cast<int>(devices));
}

// Returns the result of `read` for the text of the file at `path`. Its errors name the path.
template <class Read>
auto read_saved(const std::string& path, const char* what, Read read) {
  const std::string text = read_file(path, largest_file, what);
  return with_prefix(fmt::format("'{}': ", path), [&] { return read(text); });
}

Graph read_graph(std::string_view text) {
  return is_trace(text) ? graph_from_trace(text) : graph_from_json(text);
}

// Returns the question, without the model of --max-model.
PlanQuestion question_of(const PlanCommand& command, const Source& source) {
  PlanQuestion question;
  question.options = command.options;
  if (source.machine) {
    question.machine = describe_machine(*source.machine);
    question.measured = &*source.machine;
    question.machine_file = command.machine;
  }
  question.take_budget(command.device_memory, command.host_memory, 1);
  if (command.max_model) return question;
  question.model = model_spec(command.model, source.type);
  question.source = question.model ? "the model" : command.graph_file;
  Graph graph = question.model
                    ? build(*question.model)
                    : read_saved(command.graph_file, "a graph saved with to_json, or a trace", read_graph);
  take_devices(command, source, work_type(graph), question.devices(), question);
  question.take(std::move(graph));
  return question;
}

void require_askable(const PlanCommand& command, Sweep::Over over) {
  const bool memory = over == Sweep::Over::memory;
  if (memory && command.device_memory)
    throw InvalidInput("--device-memory: --sweep memory takes the budgets itself; leave one of them out");
  if (memory && command.options.policy == Policy::none)
    throw InvalidInput("--policy none: it has one plan, so there is nothing to sweep; leave it out");
  if (over == Sweep::Over::batch && !command.model.batch.empty())
    throw InvalidInput("--batch: --sweep batch takes the batches itself; leave one of them out");
  if (over == Sweep::Over::devices && !command.model.devices.empty())
    throw InvalidInput("--devices: --sweep devices takes their numbers itself; leave one of them out");
}

std::vector<SweepRow> rows_of(const Sweep& sweep, const PlanCommand& command, const Source& source) {
  PlanQuestion question = question_of(command, source);
  switch (sweep.over) {
    case Sweep::Over::memory:
      return sweep_memory(std::move(question), sweep.budgets, command.progress);
    case Sweep::Over::batch:
      return sweep_batch(std::move(question), sweep.batches, command.progress);
    case Sweep::Over::devices:
      break;
  }
  return sweep_devices(std::move(question), command.model, sweep.devices, command.progress);
}

int write_rows(const PlanCommand& command, const std::vector<SweepRow>& rows, std::string& output) {
  output += command.json ? line(to_json(rows)) : describe(rows);
  const bool some =
      std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.answer.feasible; });
  return some ? 0 : 2;
}

int sweep(const PlanCommand& command, const Source& source, std::string& output) {
  const Sweep sweep = parse_sweep(command.sweep);
  require_askable(command, sweep.over);
  return write_rows(command, rows_of(sweep, command, source), output);
}

int answer_all_codes(PlanCommand command, const Source& source, std::string& output) {
  command.model.code_activations.clear();
  return write_rows(command, sweep_codes(question_of(command, source), command.progress), output);
}

// Lines behind the ordinary answer.
struct MoreAnswer {
  std::string text;
  Json fields = Json::object();
};

void write_answer(const PlanCommand& command, const PlanQuestion& question, const PlanAnswer& answer,
                  const Plan& plan, const MoreAnswer& more, PlanFiles& files, std::string& output) {
  if (answer.feasible && files.plan.wanted()) {
    files.plan.write(to_json(plan));
    files.plan.commit();
  }
  if (answer.feasible && files.report.wanted()) {
    files.report.write(report_page(question, plan, command.progress));
    files.report.commit();
  }
  if (!command.json) {
    output += describe(question, answer) + more.text;
    return;
  }
  Json json = to_json(question, answer);
  json.update(more.fields);
  output += line(json);
}

int largest_model(const PlanCommand& command, const Source& source, PlanFiles& files, std::string& output) {
  PlanQuestion question = question_of(command, source);
  const std::vector<GptSize> ladder = gpt_ladder();
  const ModelSpec smallest = model_spec(ladder.front(), command.model, source.type);
  const DataType type = smallest.type;
  take_devices(command, source, type, smallest.config.ranks, question);
  Plan plan;
  const MaxModel found = max_model(std::move(question), ladder, command.model, type, command.progress, &plan);
  if (!command.json)
    output +=
        fmt::format("{:<14}{}\n", "largest",
                    !found.answer.feasible             ? "none: not even the smallest size fits"
                    : found.place + 1 == ladder.size() ? "175b, the end of the ladder of sizes"
                                                       : "no plan was found for the next size of the ladder");
  write_answer(command, found.question, found.answer, plan, {}, files, output);
  return found.answer.feasible ? 0 : 2;
}

// Adds the largest shape of a model of --model that fits the budget.
void add_largest_shape(const PlanCommand& command, const PlanQuestion& question, bool feasible,
                       MoreAnswer& more) {
  if (command.model.model.empty() || question.budget.device == unlimited) return;
  const LargestShape largest = largest_shape(question, feasible, command.progress);
  more.text += describe(largest);
  more.fields["largest"] = to_json(largest);
}

int answer_budget(const PlanCommand& command, const Source& source, PlanFiles& files, std::string& output) {
  const PlanQuestion question = question_of(command, source);
  Plan plan;
  const PlanAnswer found = answer(question, &plan);
  MoreAnswer more;
  add_largest_shape(command, question, found.feasible, more);
  write_answer(command, question, found, plan, more, files, output);
  return found.feasible ? 0 : 2;
}

int answer_micro_batches(const PlanCommand& command, const Source& source, PlanFiles& files,
                         std::string& output) {
  const std::vector<ModelSpec> models = micro_batch_models(command.model, source.type);
  PlanCommand first = command;
  first.model.micro_batches = std::to_string(models.front().config.micro_batches);
  const MicroBatchChoice choice = choose_micro_batches(question_of(first, source), models, command.progress);
  const bool feasible = choice.answer().feasible;
  MoreAnswer more;
  more.fields["micro_batch_choices"] = to_json(choice);
  PlanQuestion in_any_order = choice.question;
  in_any_order.options.order = command.options.order;
  add_largest_shape(command, in_any_order, feasible, more);
  if (!command.json) output += describe(choice) + '\n';
  write_answer(command, choice.question, choice.answer(), choice.plan, more, files, output);
  return feasible ? 0 : 2;
}

Plan read_plan(const std::string& path) {
  return read_saved(path, "a plan that --plan-json wrote", plan_from_json);
}

int compare_files(const PlanCommand& command, std::string& output) {
  if (command.compare.size() != 2) throw InvalidInput("--compare: give two files that --plan-json wrote");
  if (!command.graph_file.empty() || names_a_model(command.model) || command.max_model ||
      !command.sweep.empty() || !command.plan_file.empty() || !command.report_file.empty())
    throw InvalidInput(
        "--compare plans nothing: give it two files that --plan-json wrote, and --json if you like");
  const Plan a = read_plan(command.compare[0]);
  const Plan b = read_plan(command.compare[1]);
  const PlanComparison comparison = compare(a, b);
  output += command.json ? line(to_json(a, b, comparison)) : describe(a, b, comparison);
  return 0;
}

}  // namespace

CLI::App* add_plan(CLI::App& app, RawPlanCommand& raw) {
  CLI::App* plan = app.add_subcommand("plan", "Does a training step fit, and at what price");
  plan->footer(
      "SIZE is 64MiB, 1.5G (binary), 10MB (decimal) or plain bytes.\n"
      "Exit code: 0 it fits, 2 it does not or the command line must change.");
  plan->get_formatter()->column_width(34);
  const char* group = "Plan and answer";
  add_model(*plan, raw.command);
  add_machine_options(*plan, PlanUser::plan, "Machine", raw.options);
  add_plan_options(*plan, PlanUser::plan, group, raw.options);
  add_answer(*plan, group, raw.command);
  return plan;
}

PlanCommand parse(const RawPlanCommand& raw) {
  PlanCommand command = raw.command;
  command.machines = machines_folder();
  command.machine = raw.options.machine;
  const PlanChoice choice = parse(raw.options);
  command.device_memory = choice.device_memory;
  command.host_memory = choice.host_memory;
  command.options = choice.options;
  command.model.clips = !command.options.optimizer_in_backward;
  if (command.options.optimizer_in_backward && !command.options.speculates)
    throw InvalidInput(
        "--optimizer-in-backward makes updates early, which --speculate off forbids: leave one out");
  return command;
}

int run_plan_command(const PlanCommand& command, std::string& output) {
  if (command.machine == "list") {
    output += list_machines(command.machines);
    return 0;
  }
  if (!command.compare.empty()) return compare_files(command, output);
  require_one_subject(command);
  PlanFiles files(command);
  const Source source = source_of(command);
  if (!command.sweep.empty()) return sweep(command, source, output);
  if (asks_for_all_codes(command)) return answer_all_codes(command, source, output);
  if (asks_for_micro_batches(command.model)) return answer_micro_batches(command, source, files, output);
  return command.max_model ? largest_model(command, source, files, output)
                           : answer_budget(command, source, files, output);
}

}  // namespace stowage
