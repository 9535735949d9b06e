#include "tools/cli/parallel_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "src/base/output_file.h"
#include "stowage/error.h"
#include "tools/answer/parallel_answer.h"
#include "tools/answer/parallel_trace.h"
#include "tools/cli/files.h"
#include "tools/console/interrupt.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_costs = 256 << 20;

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
      ->required()
      ->type_name("FILE");
  parallel->add_option("--devices", raw.devices, "devices, instead of the file's")->type_name("N");
  parallel->add_option("--memory", raw.memory, "memory of each device, or unlimited, instead of the file's")
      ->type_name("SIZE");
  parallel->add_option("--objective", raw.objective, "step or largest-stage, instead of the file's")
      ->type_name("WHAT");
  parallel
      ->add_option("--limit", command.most_work,
                   "combinations after which the search ends with the best so far")
      ->type_name("N")
      ->capture_default_str();
  parallel->add_flag("--json", command.json, "answer as JSON");
  parallel->add_option("--trace", command.trace_file, "write one step, as Perfetto opens it")
      ->type_name("FILE");
  return parallel;
}

ParallelCommand parse(const RawParallelOptions& raw) {
  ParallelCommand command = raw.command;
  command.devices = raw.devices;
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
  if (command.most_work == 0)
    throw InvalidInput("--limit: a search of no combinations finds nothing; give at least 1");
  command.stop = [] { return interrupted(); };
  return command;
}

int run_parallel_command(const ParallelCommand& command, std::string& output) {
  OutputFile trace("--trace", command.trace_file, Writing::whole);
  const ParallelCosts costs = costs_of(command);
  if (trace.wanted()) with_prefix("--trace: ", [&] { require_traceable(costs); });
  ParallelLimits limits;
  limits.most_work = command.most_work;
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

}  // namespace stowage
