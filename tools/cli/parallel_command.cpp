#include "tools/cli/parallel_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <stop_token>
#include <thread>

#include "src/base/output_file.h"
#include "src/machine/chosen_machine.h"
#include "stowage/error.h"
#include "tools/answer/parallel_answer.h"
#include "tools/answer/parallel_trace.h"
#include "tools/choices/machine_choice.h"
#include "tools/cli/cluster_answer.h"
#include "tools/cli/files.h"
#include "tools/cli/model_options.h"
#include "tools/console/interrupt.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_costs = 256 << 20;
constexpr std::uintmax_t largest_cluster = 1 << 20;

ParallelCosts costs_of(const ParallelCommand& command) {
  const std::string text = read_file(command.costs_file, largest_costs, "costs of layers (docs/parallel.md)");
  ParallelCosts costs =
      with_prefix(fmt::format("'{}': ", command.costs_file), [&] { return parallel_costs_from_json(text); });
  if (command.devices) costs.devices = *command.devices;
  if (command.memory) costs.memory = *command.memory;
  if (command.objective) costs.objective = *command.objective;
  with_prefix(fmt::format("'{}': ", command.costs_file), [&] {
    check_costs(costs);
    return 0;
  });
  return costs;
}

}  // namespace

CLI::App* add_parallel(CLI::App& app, RawParallelOptions& raw) {
  CLI::App* parallel = app.add_subcommand(
      "parallel", "Which parallelism: layers into stages on several devices, by their costs");
  parallel->footer(
      "The answer is the best grid: stages that all have the same parts of the batch and the same split of "
      "the\n"
      "products. A better pipeline that is no grid is one line below it. The file is JSON "
      "(docs/parallel.md).\n"
      "Exit code: 0 there is a pipeline, 2 none fits, or the command line or the file must change, 130 the\n"
      "search was stopped by Ctrl-C; the best so far is printed.");
  parallel->get_formatter()->column_width(34);
  ParallelCommand& command = raw.command;
  parallel
      ->add_option("--costs", command.costs_file, "costs of the layers, their variants and what limits them")
      ->group("What to cut: anybody's costs, or a model")
      ->type_name("FILE");
  add_model_options(*parallel, "What to cut: anybody's costs, or a model", command.model);
  add_shape_options(*parallel, "The model's shape", command.model);
  add_machine_options(*parallel, PlanUser::plan, "The model's cluster", raw.plans);
  parallel->add_option("--nodes", raw.nodes, "nodes that are each the --machine (1)")
      ->group("The model's cluster")
      ->type_name("N");
  parallel
      ->add_option("--cluster", command.cluster_file,
                   "nodes, their machine and the network between them, instead of --machine and --nodes")
      ->group("The model's cluster")
      ->type_name("FILE");
  add_plan_options(*parallel, PlanUser::plan, "Plans of its stages", raw.plans);
  parallel
      ->add_option("--rung", raw.rung,
                   "how far up grids are timed: sums of ops, lower bounds, or plans of their stages (plans)")
      ->group("Plans of its stages")
      ->type_name("WHAT");
  parallel->add_option("--devices", raw.devices, "devices, instead of the file's")->type_name("N");
  parallel->add_option("--memory", raw.memory, "memory of each device, or unlimited, instead of the file's")
      ->type_name("SIZE");
  parallel->add_option("--objective", raw.objective, "step or largest-stage, instead of the file's")
      ->type_name("WHAT");
  parallel
      ->add_option("--limit", raw.most_work,
                   "combinations (of a model: plans of stages) after which the search ends with the "
                   "best so far")
      ->type_name("N");
  parallel->add_flag("--json", command.json, "answer as JSON");
  parallel->add_option("--trace", command.trace_file, "write one step, as Perfetto opens it")
      ->type_name("FILE");
  return parallel;
}

ParallelCommand parse(const RawParallelOptions& raw) {
  ParallelCommand command = raw.command;
  command.devices = raw.devices;
  command.nodes = raw.nodes;
  command.most_work = raw.most_work;
  command.machine = raw.plans.machine;
  command.machines = machines_folder();
  command.plans = parse(raw.plans);
  const RawPlanOptions usual;
  command.asks_for_plans = !raw.rung.empty() || raw.plans.policy != usual.policy ||
                           raw.plans.bucket_size != usual.bucket_size ||
                           raw.plans.speculate != usual.speculate || raw.plans.optimizer_in_backward;
  command.model.clips = !command.plans.options.optimizer_in_backward;
  if (raw.rung == "sums") command.highest = Rung::sums;
  if (raw.rung == "bounds") command.highest = Rung::bounds;
  if (!raw.rung.empty() && to_string(command.highest) != raw.rung)
    throw InvalidInput(fmt::format("--rung: \"{}\" is none; give sums, bounds or plans", raw.rung));
  if (raw.nodes && (*raw.nodes < 1 || *raw.nodes > most_cluster_nodes))
    throw InvalidInput(
        fmt::format("--nodes: {} is no number of nodes; give 1 to {}", *raw.nodes, most_cluster_nodes));
  if (raw.devices && (*raw.devices < 1 || *raw.devices > most_parallel_devices))
    throw InvalidInput(fmt::format("--devices: {} is no number of devices; give 1 to {}", *raw.devices,
                                   most_parallel_devices));
  if (!raw.memory.empty())
    command.memory = with_prefix("--memory: ", [&] { return parse_limit(raw.memory); });
  if (command.memory == Bytes{0})
    throw InvalidInput("--memory: nothing fits in 0 bytes; give at least 1, or unlimited");
  if (raw.objective == "step") command.objective = ParallelObjective::step;
  if (raw.objective == "largest-stage") command.objective = ParallelObjective::largest_stage;
  if (!raw.objective.empty() && !command.objective)
    throw InvalidInput(fmt::format("--objective: \"{}\" is none; give step or largest-stage", raw.objective));
  if (command.most_work == std::uint64_t{0})
    throw InvalidInput("--limit: a search of no combinations finds nothing; give at least 1");
  command.stop = [] { return interrupted(); };
  return command;
}

namespace {

int by_costs(const ParallelCommand& command, std::string& output) {
  OutputFile trace("--trace", command.trace_file, Writing::whole);
  const ParallelCosts costs = costs_of(command);
  if (trace.wanted()) with_prefix("--trace: ", [&] { require_traceable(costs); });
  ParallelLimits limits;
  if (command.most_work) limits.most_work = *command.most_work;
  limits.keep_going = [&](std::uint64_t work) {
    command.progress(fmt::format("{} combinations", grouped(work)));
    return !command.stop();
  };
  const ParallelAnswer answer = stowage::answer(costs, limits);
  if (answer.feasible() && trace.wanted()) {
    trace.write(trace_of_step(costs, answer));
    trace.commit();
  }
  output += command.json ? to_json(costs, answer).dump(2) + '\n' : describe(costs, answer);
  if (answer.stopped) return interrupted_code;
  return answer.feasible() ? 0 : 2;
}

void require_costs_alone(const ParallelCommand& command) {
  const auto refuse = [](const char* option) {
    throw InvalidInput(fmt::format("{}: --costs has everything that it asks; leave one of them out", option));
  };
  if (!command.model.gpt.empty()) refuse("--gpt");
  if (!command.model.bert.empty()) refuse("--bert");
  if (!command.model.model.empty()) refuse("--model");
  if (!command.machine.empty()) refuse("--machine");
  if (!command.cluster_file.empty()) refuse("--cluster");
  if (command.nodes) refuse("--nodes");
  const ModelWords& words = command.model;
  for (const auto& [option, word] : {std::pair{"--heads", &words.heads},
                                     {"--sequence", &words.sequence},
                                     {"--batch", &words.batch},
                                     {"--vocabulary", &words.vocabulary},
                                     {"--head-chunk", &words.head_chunk},
                                     {"--table-rows", &words.table_rows},
                                     {"--keep-tokens", &words.keep_tokens},
                                     {"--moments", &words.moments},
                                     {"--code-activations", &words.code_activations},
                                     {"--type", &words.type}})
    if (!word->empty()) refuse(option);
  if (command.plans.device_memory || command.plans.host_memory)
    throw InvalidInput("--device-memory, --host-memory: they are a model's; with --costs give --memory");
  if (command.asks_for_plans)
    throw InvalidInput("--costs has no stages to plan: leave out --rung and the options of plans");
}

void require_model_alone(const ParallelCommand& command) {
  const auto refuse = [](const char* option, const char* instead) {
    throw InvalidInput(fmt::format("{}: it goes with --costs; of a model, {}", option, instead));
  };
  if (command.devices) refuse("--devices", "give --machine and --nodes, or --cluster");
  if (command.memory) refuse("--memory", "give --device-memory");
  if (command.objective) refuse("--objective", "the step alone is asked");
}

ClusterFile cluster_of(const ParallelCommand& command) {
  if (!command.cluster_file.empty()) {
    if (!command.machine.empty() || command.nodes)
      throw InvalidInput("--cluster says the machine and the nodes; leave out --machine and --nodes");
    const std::string text = read_file(command.cluster_file, largest_cluster, "a cluster (docs/parallel.md)");
    return with_prefix(fmt::format("'{}': ", command.cluster_file), [&] { return cluster_from_json(text); });
  }
  if (command.machine.empty())
    throw InvalidInput("no cluster: give --machine, such as 4x-rtx4090, perhaps with --nodes, or --cluster");
  ClusterFile file;
  file.machine = command.machine;
  file.nodes = command.nodes.value_or(1);
  return file;
}

ClusterQuestion question_of(const ParallelCommand& command, const ClusterFile& file) {
  ClusterQuestion question;
  const std::string where =
      command.cluster_file.empty() ? "" : fmt::format("'{}', 'machine': ", command.cluster_file);
  question.machine = with_prefix(where, [&] { return read_machine(file.machine, command.machines); });
  const int devices = devices_of_node(question.machine);
  question.nodes = file.nodes;
  question.devices_per_node = file.devices_per_node.value_or(devices);
  if (question.devices_per_node > devices)
    throw InvalidInput(
        fmt::format("{}'devices_per_node' is {}, and the machine has {}: give at most that many", where,
                    question.devices_per_node, devices));
  if (question.nodes > 1 && !question.machine.peers && command.cluster_file.empty())
    throw InvalidInput(fmt::format(
        "--nodes {}: {} says nothing of other devices; give a machine with several, such as 8x-h200, or a "
        "--cluster file, which names its network",
        question.nodes, command.machine));
  if (question.devices() > most_parallel_devices)
    throw InvalidInput(fmt::format("a cluster of {} devices is too large; give at most {}",
                                   question.devices(), most_parallel_devices));
  question.network = file.network;
  question.device_memory = command.plans.device_memory;
  question.host_memory = command.plans.host_memory;
  question.options = command.plans.options;
  question.highest = command.highest;
  ModelWords words = command.model;
  words.micro_batches = "1";  // the search chooses them
  const std::optional<ModelSpec> spec = model_spec(words, usual_type(question.machine));
  question.model = *spec;
  return question;
}

int of_model(const ParallelCommand& command, std::string& output) {
  const ModelWords& words = command.model;
  if (words.gpt.empty() && words.bert.empty() && words.model.empty())
    throw InvalidInput("nothing to cut: give --costs FILE, or a model: --gpt, --bert or --model");
  require_model_alone(command);
  OutputFile trace("--trace", command.trace_file, Writing::whole);
  if (is_emulated(command.plans.options.policy))
    throw InvalidInput(fmt::format("--policy {}: emulated systems have no stages; give auto or none",
                                   to_string(command.plans.options.policy)));
  const ClusterFile file = cluster_of(command);
  ClusterQuestion question = question_of(command, file);
  std::stop_source stop;
  question.options.stop = stop.get_token();
  const std::jthread watcher([&](const std::stop_token& ended) {
    while (!ended.stop_requested() && !stop.stop_requested()) {
      if (command.stop()) stop.request_stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  ClusterLimits limits;
  if (command.most_work) limits.most_work = *command.most_work;
  limits.keep_going = [&](const std::string& doing) {
    command.progress(doing);
    return !stop.stop_requested();
  };
  const ClusterAnswer answer = stowage::answer(question, limits, file.watts_per_device, file.watts_per_node);
  if (answer.feasible() && trace.wanted()) {
    trace.write(trace_of(answer));
    trace.commit();
  }
  output += command.json ? to_json(question, answer).dump(2) + '\n' : describe(question, answer);
  if (stop.stop_requested()) return interrupted_code;
  return answer.feasible() ? 0 : 2;
}

}  // namespace

int run_parallel_command(const ParallelCommand& command, std::string& output) {
  if (command.costs_file.empty()) return of_model(command, output);
  require_costs_alone(command);
  return by_costs(command, output);
}

}  // namespace stowage
