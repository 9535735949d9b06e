#include "samples/run/program.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <vector>

#include "samples/report/report.h"
#include "samples/report/trace.h"
#include "samples/run/checkpoints.h"
#include "samples/run/evaluate_alone.h"
#include "samples/run/init_export.h"
#include "samples/run/job.h"
#include "samples/run/run_device.h"
#include "samples/run/run_needs.h"
#include "samples/run/run_outputs.h"
#include "samples/run/stored_model.h"
#include "samples/run/trainer.h"
#include "samples/task/generate.h"
#include "samples/task/task.h"
#include "src/base/laps.h"
#include "src/base/parallel_for.h"
#include "src/base/printable.h"
#include "stowage/engine_group.h"
#include "stowage/error.h"
#include "tools/console/interrupt.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

constexpr int failed_code = 1;

// Makes the plan, and sets the fields of `setup` about it.
Plan plan_step(Model& model, const Options& options, Setup& setup) {
  const Graph& graph = model.planned();
  const Bytes budget = options.budget.device;
  const Underway work("planning", fmt::format("{} operations{}", grouped(graph.ops.size()),
                                              budget == unlimited ? "" : " in " + format_bytes(budget)));
  Planner planner(graph, setup.machine, options.plan);
  Answer answer = planner.answer(budget_beside_copy(options, model.graph));
  if (const auto* infeasible = std::get_if<Infeasible>(&answer.outcome)) {
    Infeasible of_all = *infeasible;
    if (of_all.host) {  // --host-memory covers all devices and the copy
      of_all.budget = options.budget.host;
      of_all.minimum =
          of_all.minimum * static_cast<Bytes>(options.devices) + copy_bytes(options, model.graph);
    }
    throw InvalidInput(infeasible_message(of_all, options.plan.policy));
  }
  setup.need = answer.need;
  setup.minimum = answer.minimum;
  setup.peak = answer.peak;
  return std::get<Plan>(std::move(answer.outcome));
}

// Sets `steps` from --epochs.
void count_epochs(Options& options, const Task& task) {
  if (!options.epochs) return;
  constexpr double most = 1ULL << 40U;  // limit of --steps
  const auto samples = static_cast<double>(task.samples());
  const double steps = std::ceil(*options.epochs * samples / static_cast<double>(options.model.batch));
  if (steps > most)
    throw InvalidInput(fmt::format("--epochs {}: of {:.0f} samples that are {:.0f} steps; give fewer",
                                   *options.epochs, samples, steps));
  options.steps = static_cast<std::uint64_t>(steps);
}

void write_trace(OutputFile& file, const Setup& setup, EngineGroup& engine) {
  if (!file.wanted()) return;
  const Timeline planned = simulate(*setup.graph, *setup.plan, setup.machine);
  file.write(trace_json(*setup.graph, *setup.plan, planned.instructions, engine.last_timeline()));
  file.commit();
}

void write_report(OutputFile& file, const Setup& setup, Trainer& trainer) {
  if (!file.wanted()) return;
  file.write(run_page(setup, trainer.statistics(), trainer.recorder()));
  file.commit();
}

// Runs, and writes an error that ends the run early on its page, with the steps up to there.
void run_or_report(Trainer& trainer, const Setup& setup, Outputs& outputs, Failures& failures) {
  try {
    trainer.run(outputs.log);
  } catch (const Error& error) {
    trainer.recorder().fail(error.what());
    failures.spare([&] { write_report(outputs.report, setup, trainer); });
    throw;
  }
}

void print_sample(const Options& options, const Task& task, const ReadParameter& read) {
  if (options.sample_tokens == 0) return;
  print(fmt::format("\n{} {} from the model, temperature 0.8:\n\n", options.sample_tokens,
                    options.tokenizer.empty() ? "bytes" : "tokens"));
  TerminalText terminal;
  task.sample(read, [&](std::string_view text) {
    print(terminal.add(text));
    return !interrupted();
  });
  print(terminal.finish() + "\n");
}

void prepare(RunDevice& prepared, Options& options, Model& model) {
  const Underway work("calibrating", "the device");
  Graph& graph = model.planned();
  prepare_device(prepared, options, graph);
  if (!prepared.profile.empty()) set_seconds(prepared.profile, prepared.machine, graph);
  share_host(prepared, options.devices, graph);
}

// The parts that a run begins with.
struct Beginning {
  std::unique_ptr<Task> task;
  std::optional<Outputs> outputs;
  std::optional<RunCheckpoints> checkpoints;
  Model model;
  std::optional<InitialModel> initial;
  std::optional<EvaluationPlan> evaluation;  // where the device evaluates
};

// Returns the largest operand bytes of any op: no plan on any machine takes less memory.
Bytes largest_op_bytes(const Graph& graph) {
  Bytes largest = 0;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) continue;
    std::set<TensorId> operands(op.reads.begin(), op.reads.end());
    operands.insert(op.writes.begin(), op.writes.end());
    for (const Alias& alias : op.may_alias) operands.erase(op.writes[alias.write]);
    Bytes bytes = 0;
    for (const TensorId id : operands) bytes += graph.tensor(id).bytes();
    largest = std::max(largest, bytes);
  }
  return largest;
}

// Throws InvalidInput for a budget in which not even one op has room, before anything is measured. The memory
// of a card's context and libraries is not known yet.
void require_possible(Model& model, const Options& options, const RunDevice& prepared) {
  Bytes most = options.budget.device;
  for (const auto& card : prepared.cards.here) most = std::min(most, card->memory_info().total);
  const bool measures = options.machine.empty();
  if (!measures || is_emulated(options.plan.policy) || largest_op_bytes(model.planned()) <= most) return;
  Machine any;
  any.h2d = any.d2h = options.link;
  Planner planner(model.planned(), any, options.plan);
  if (planner.minimum_bytes() <= most) return;
  const auto none = std::get<Infeasible>(planner.answer({.device = most}).outcome);
  throw InvalidInput(infeasible_message(none, options.plan.policy) +
                     (prepared.cards.here.empty() ? "" : "; context and libraries take more of a card"));
}

// Prepares and plans for all devices; `laps` has timed their opening. Prints what was found, and writes the
// plan if it is asked for.
void prepare_and_plan(Beginning& run, Options& options, Setup& setup, RunDevice& prepared, Plan& plan,
                      Laps& laps) {
  require_possible(run.model, options, prepared);
  prepare(prepared, options, run.model);
  setup.machine = prepared.machine;
  setup.fitted = prepared.fitted;
  setup.device = prepared.which;
  setup.planned_for = prepared.planned_for;
  setup.start.device = laps.lap();
  plan = plan_step(run.model, options, setup);
  if (options.evaluate_every > 0)
    run.evaluation = plan_evaluation(*run.task, options, run.model.planned(), plan, setup.machine,
                                     prepared.profile, setup.evaluation);
  setup.start.plan = laps.lap();
  setup.data = run.task->data();
  setup.epoch_samples = run.task->samples();
  print(printable_lines(setup_table(setup)));
  run.outputs->plan.write(to_json(plan));
  run.outputs->plan.commit();
}

int stopped_before_steps() {
  print(fmt::format("\nstopped by {} before the first step\n", interrupted_by()));
  return interrupted_code;
}

// Makes the options those of a rank that does not lead: it writes nothing, and begins where the leader does.
void follow(Options& options, const std::string& start) {
  for (std::string* written : {&options.plan_file, &options.log_file, &options.trace_file,
                               &options.report_file, &options.weights_file, &options.export_folder})
    written->clear();
  options.resume = !start.empty();
  options.resume_from = start;
}

// Returns the settings that all ranks must share, so that they make the same calls and numbers.
std::string common_text(const Options& options, const Task& task, std::uint64_t first_step) {
  std::string text = fmt::format("from {} evaluate {} patience {} checkpoint {} plan {} verify {}\n",
                                 first_step, options.evaluate_every, options.patience > 0,
                                 options.checkpoint_folder.empty(), options.plan_only, options.verify);
  for (const auto& [name, value] : configuration_of(options, task.configuration()))
    text += fmt::format("{} {}\n", name, value);
  return text;
}

// Reads the run's inputs, and opens its outputs.
void begin(Beginning& run, Options& options, Job& job) {
  job.together([&] {
    if (job.leads()) check_distinct(options);
    if (options.data.empty()) take_stored_model(options);
    run.task = make_task(options);
    run.task->take_share({static_cast<std::uint32_t>(job.rank()), static_cast<std::uint32_t>(job.size())});
    count_epochs(options, *run.task);
    if (!job.leads()) return;
    run.outputs.emplace(options);
    run.checkpoints.emplace(options, *run.task);
  });
  const std::string start = job.from_leader(run.checkpoints ? run.checkpoints->start() : "");
  job.together([&] {
    if (!job.leads()) {
      follow(options, start);
      run.outputs.emplace(options);
      run.checkpoints.emplace(options, *run.task, false);
    }
    run.model = build_model(options, job.rank());
    run.initial.emplace(options, run.model.graph);
    run.checkpoints->take_graph(run.model.graph);
  });
  job.expect_same("what is trained (options, data or the checkpoint to go on from)",
                  common_text(options, *run.task, run.checkpoints->first_step()));
}

// Takes the leader's machine and plan: ranks that measured for themselves would make other plans.
void take_plan(RunDevice& prepared, Plan& plan, Job& job) {
  static_assert(std::is_trivially_copyable_v<Machine>);
  if (job.size() == 1) return;
  std::string machine(sizeof(Machine), '\0');
  std::memcpy(machine.data(), &prepared.machine, machine.size());
  machine = job.from_leader(machine);
  std::memcpy(&prepared.machine, machine.data(), sizeof(Machine));
  const std::string text = job.from_leader(job.leads() ? to_json(plan) : "");
  if (!job.leads()) plan = plan_from_json(text);
}

// Throws OutOfMemory unless the host has memory for this process, and for all ranks of its machine together.
void require_host_room(const Options& options, const Graph& graph, const Plan& plan,
                       const RunDevice& prepared, const Job& job) {
  const bool on_card = !prepared.cards.here.empty();
  std::vector<HostLimit> limits = read_host_limits();
  const std::int64_t own = options.devices / options.processes;
  require_host_memory(host_need(options, graph, plan, on_card, own), limits);
  std::erase_if(limits, [](const HostLimit& limit) { return limit.of_process; });
  require_host_memory(host_need(options, graph, plan, on_card, own * job.ranks_here()), limits);
}

// Warns of disks that have too little room for what is written.
void warn_of_disks(const Options& options, const Graph& graph, std::uint64_t first_step) {
  for (const std::string& line : disk_warnings(disk_needs(options, graph, first_step)))
    std::fprintf(stderr, "%s: warning: %s\n", program_name(options.program), printable_message(line).c_str());
}

// CPU threads of each rank: its part of the machine's, unless a launcher has bound it to cores of its own.
int threads_of_rank(const Job& job) {
  cpu_set_t bound;
  const int all = parallel_threads();
  const int own = ::sched_getaffinity(0, sizeof bound, &bound) == 0 ? CPU_COUNT(&bound) : all;
  return std::max(1, std::min(own, all / job.ranks_here()));
}

// With --patience the export has the weights of the best checkpoint, read from its file.
std::string write_export(Beginning& run, const Options& options, EngineGroup& engine) {
  const Graph& graph = run.model.graph;
  const auto write = [&](const ExportedModel::ReadPart& read, const std::string& whose) {
    return run.outputs->exported.write(*run.task, graph, read, *run.initial, whose);
  };
  const std::uint64_t last = engine.completed_steps();
  const auto best = run.checkpoints->best_to_export();
  if (options.export_folder.empty() || !best || best->step == last)
    return write([&](TensorId id, Bytes offset, std::span<std::byte> into) { engine.read(id, offset, into); },
                 options.patience == 0 ? "" : fmt::format("; weights of step {}, the last", last));
  const CheckpointValues values(Checkpoint(best->path), graph);
  return write([&](TensorId id, Bytes offset, std::span<std::byte> into) { values.read(id, offset, into); },
               fmt::format("; weights of step {}, the best, from {}", best->step, best->path));
}

// Writes --weights and --export from the checkpoint's files, holding one tensor at most.
int copy_weights(Beginning& run, const Options& options, Job& job) {
  Failures failures(options.program);
  job.together([&] {
    if (!job.leads()) return;
    const Graph& graph = run.model.graph;
    print(printable_lines(run.checkpoints->notes()));
    const CheckpointValues values = run.checkpoints->values();
    warn_of_disks(options, graph, run.checkpoints->first_step());
    failures.spare(
        [&] { write_weights(run.outputs->weights, graph, [&](TensorId id) { return values.read(id); }); });
    failures.spare([&] {
      print(printable_lines(run.outputs->exported.write(
          *run.task, graph,
          [&](TensorId id, Bytes offset, std::span<std::byte> into) { values.read(id, offset, into); },
          *run.initial, "")));
    });
  });
  return failures.any() ? failed_code : 0;
}

// Writes the outputs of the trained model that were asked for.
void write_results(Beginning& run, const Options& options, const Setup& setup, Trainer& trainer,
                   Failures& failures) {
  EngineGroup& engine = trainer.engine();
  const Graph& graph = run.model.graph;
  engine.on_first([&] {
    failures.spare(
        [&] { write_weights(run.outputs->weights, graph, [&](TensorId id) { return engine.read(id); }); });
    failures.spare([&] { print(printable_lines(write_export(run, options, engine))); });
  });
  failures.spare([&] { write_report(run.outputs->report, setup, trainer); });
  failures.spare([&] { write_trace(run.outputs->trace, setup, engine); });
  engine.on_first([&] {
    if (!interrupted()) print_sample(options, *run.task, reader_of(graph, engine));
  });
}

int train_on(Devices& devices, Beginning& run, const Options& options, Setup& setup, Job& job) {
  Failures failures(options.program);
  Laps laps;
  std::optional<Underway> work(std::in_place, "preparing", "memory and weights");
  std::optional<Trainer> trainer;
  std::string begun;
  job.together([&] {
    trainer.emplace(setup, run.model, *run.task, *run.checkpoints, devices,
                    run.evaluation ? &*run.evaluation : nullptr, failures, job);
    setup.start.engine = laps.lap();
    setup.start.pinning = trainer->pinning_seconds();
    if (!run.checkpoints->resumes()) begun = run.initial->load(run.model.graph, trainer->engine());
    begun += run.checkpoints->begin(trainer->engine());
  });
  work.reset();
  print(printable_lines(begun + unpinned_note(*setup.plan, setup.machine, trainer->engine().unpinned())));
  job.together([&] { trainer->start_log(run.outputs->log); });
  run_or_report(*trainer, setup, *run.outputs, failures);
  const std::string early = trainer->ended_early() ? run.checkpoints->patience().text() : "";
  if (trainer->engine().completed_steps() < options.steps)
    trainer->recorder().stop(trainer->ended_early() ? early : "by " + interrupted_by());
  if (job.leads() && trainer->statistics().steps() > 0)
    print('\n' + summary(setup, trainer->statistics()) + describe(trainer->rank_rows()));
  if (trainer->ended_early())
    print(fmt::format("{}ended early   behind step {} of {}: {}\n",
                      trainer->statistics().steps() > 0 ? "\n" : "", trainer->engine().completed_steps(),
                      options.steps, early));
  write_results(run, options, setup, *trainer, failures);
  const bool stopped = job.stops();  // no rank needs another one after this
  if (stopped)
    print(fmt::format("\nstopped by {}; what was asked for is written as of the last finished step\n",
                      interrupted_by()));
  failures.spare([&] { run.checkpoints->require_saved(); });
  if (failures.any()) return failed_code;
  return stopped ? interrupted_code : 0;
}

}  // namespace

int train(const Options& given, Job& job) {
  Options options = given;
  set_parallel_threads(options.threads);
  watch_interrupts();
  Beginning run;
  // Running work that the user sees does not touch the outputs.
  const OnAbandon undo([&] { run.outputs.reset(); });
  const bool copies = copies_weights(options);  // alike on all ranks, until some follow
  begin(run, options, job);
  if (copies) return copy_weights(run, options, job);
  if (evaluates_alone(options, *run.task)) {
    evaluate_alone(options, *run.task, run.model.graph, *run.checkpoints, *run.initial, run.outputs->log,
                   job);
    return 0;
  }

  Setup setup;
  setup.options = &options;
  setup.graph = &run.model.planned();
  setup.model = &run.model.graph;
  RunDevice prepared;
  Plan plan;
  setup.plan = &plan;
  Laps laps;
  prepared.cards = open_run_cards(options, job);
  {
    std::optional<Underway> waiting;
    if (!job.leads()) waiting.emplace("waiting", "for the plan of rank 0");
    job.together([&] {
      if (job.leads()) prepare_and_plan(run, options, setup, prepared, plan, laps);
    });
    take_plan(prepared, plan, job);
  }
  setup.machine = prepared.machine;
  if (job.size() > 1) set_parallel_threads(threads_of_rank(job));
  if (options.plan_only) return 0;
  if (job.stops()) return stopped_before_steps();

  print("\n");
  Devices devices;
  job.together([&] {
    Options here = options;
    if (!job.leads()) here.checkpoint_folder.clear();  // the leader alone has the copy for checkpoints
    require_host_room(here, run.model.graph, plan, prepared, job);
    if (job.leads()) warn_of_disks(options, run.model.graph, run.checkpoints->first_step());
  });
  job.together([&] { devices.all = open_run_devices(prepared, options); });
  if (job.size() > 1)
    devices.communicator = job.open_communicator(*devices.all.front(), {.peer = setup.machine.peer});
  try {
    return train_on(devices, run, options, setup, job);
  } catch (const CommunicatorError&) {
    throw;
  } catch (const std::exception& error) {
    if (devices.communicator) devices.communicator->abort(error.what());
    throw;
  }
}

}  // namespace stowage::samples
