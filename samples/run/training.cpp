#include "samples/run/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "samples/options/initial_sizes.h"
#include "samples/options/schedule.h"
#include "samples/report/progress.h"
#include "samples/report/report.h"
#include "samples/report/run_history.h"
#include "samples/report/trace.h"
#include "samples/report/unpinned.h"
#include "samples/run/checkpoints.h"
#include "samples/run/host_need.h"
#include "samples/run/init_export.h"
#include "samples/run/run_device.h"
#include "samples/run/run_outputs.h"
#include "samples/run/stored_model.h"
#include "samples/run/weights_file.h"
#include "samples/task/generate.h"
#include "samples/task/task.h"
#include "src/base/laps.h"
#include "src/base/parallel_for.h"
#include "src/base/printable.h"
#include "stowage/engine_group.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "tools/console/interrupt.h"
#include "tools/console/terminal.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

constexpr int failed_code = 1;
constexpr std::uint64_t all_steps = std::numeric_limits<std::uint64_t>::max();

// stdout, at once: a pipe's reader sees lines as they come.
void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

struct Model {
  BuiltModel built;          // of `graph`
  Graph graph;               // whole parameters
  std::vector<Graph> ranks;  // where there are several devices, each one's
  Graph& planned() { return ranks.empty() ? graph : ranks.front(); }
};

Model build_model(const Task& task, const Options& options) {
  return about_initial(options, [&] {
    const auto build = [&](const GptConfig& sizes, BuiltModel& built) {
      GraphBuilder builder(options.type);
      built = task.build(builder, sizes);
      return builder.finish(built.loss, optimizer_of(options));
    };
    Model model;
    model.graph = build(options.model, model.built);
    GptConfig sizes = options.model;
    sizes.ranks = options.devices;
    for (BuiltModel built; sizes.rank < sizes.ranks && sizes.ranks > 1; ++sizes.rank)
      model.ranks.push_back(build(sizes, built));
    return model;
  });
}

// Both must outlive what is returned.
ReadParameter reader_of(const Graph& graph, EngineGroup& engine) {
  return [&](const std::string& name) {
    const auto found = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    std::vector<std::byte> value = engine.read(static_cast<TensorId>(found - graph.tensors.begin()));
    return size_of(found->type) == 2 ? widened(found->type, value) : value;
  };
}

// The plan, and what else the setup tells of it.
Plan plan_step(Model& model, const Options& options, Setup& setup) {
  const Graph& graph = model.planned();
  const Bytes budget = options.budget.device;
  const Underway work("planning", fmt::format("{} operations{}", grouped(graph.ops.size()),
                                              budget == unlimited ? "" : " in " + format_bytes(budget)));
  Planner planner(graph, setup.machine, options.plan);
  Answer answer = planner.answer(budget_beside_copy(options, model.graph));
  if (const auto* infeasible = std::get_if<Infeasible>(&answer.outcome)) {
    Infeasible of_all = *infeasible;
    if (of_all.host) {  // --host-memory is that of all devices, and of the copy
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

// --epochs as steps.
void count_epochs(Options& options, const Task& task) {
  if (!options.epochs) return;
  constexpr double most = 1ULL << 40U;  // as --steps
  const auto samples = static_cast<double>(task.samples());
  const double steps = std::ceil(*options.epochs * samples / static_cast<double>(options.model.batch));
  if (steps > most)
    throw InvalidInput(fmt::format("--epochs {}: of {:.0f} samples that are {:.0f} steps; give fewer",
                                   *options.epochs, samples, steps));
  options.steps = static_cast<std::uint64_t>(steps);
}

// A BERT's file may lack its heads.
bool needs_initial_values(const Options& options) {
  return options.init.empty() || options.kind == ModelKind::bert;
}

// Ends a line that is being rewritten, whatever ends the run.
struct LineEnd {
  Progress& progress;
  ~LineEnd() { print(progress.finish()); }
};

std::vector<Device*> pointers_to(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  return pointers;
}

// The model on its devices, step by step.
class Trainer {
 public:
  Trainer(const Setup& setup, const Model& model, Task& task, RunCheckpoints& checkpoints,
          RunDevice& prepared, Failures& failures)
      : setup_(setup),
        options_(*setup.options),
        model_(model),
        task_(task),
        checkpoints_(checkpoints),
        failures_(failures),
        trains_nothing_(options_.trains_nothing),
        loss_scale_(checkpoints.first_loss_scale()),
        devices_(open_run_devices(prepared, options_)),
        engine_(pointers_to(devices_), model.graph, model.ranks, *setup.plan,
                {.seed = options_.seed,
                 .measurement = options_.trace_file.empty() ? Measurement::stalls : Measurement::timeline,
                 .initialise = needs_initial_values(options_) && !checkpoints.resumes(),
                 .first_step = checkpoints.first_step(),
                 .verify_recompute = options_.verify,
                 .pageable_fallback = options_.pageable_fallback,
                 .machine = setup.machine,
                 .kernels = {},
                 .host_kernels = {}},
                {.peer = setup.machine.peer}),
        unpinned_bytes_(unpinned_of(*setup.plan, engine_.unpinned()).bytes) {}

  // All steps, or up to an interrupt.
  void run(StepLog& log) {
    Progress progress({.first_step = engine_.completed_steps(),
                       .steps = options_.steps,
                       .tokens_per_step = setup_.tokens_per_step(),
                       .budget = options_.budget.device,
                       .machine = setup_.machine,
                       .columns = terminal_columns(stdout)});
    const std::uint64_t first = engine_.completed_steps();
    write_log([&] {
      recorder_.add_before(
          first, log.start(trains_nothing_ ? all_steps : first, task_.measures(), loss_scale_.has_value()));
    });
    {
      const LineEnd line_end{progress};
      while (engine_.completed_steps() < options_.steps && !interrupted()) {
        const StepRecord record = make_step(engine_.completed_steps());
        if (record.attention) {
          statistics_.add(*record.attention);
          checkpoints_.made_with(attention_methods(*record.attention));
        }
        write_log([&] { log.write(record); });
        print(progress.add(record.report));
        statistics_.add(record.report);
        recorder_.add(record);
        const bool last = engine_.completed_steps() == options_.steps;
        if (options_.evaluate_every > 0 && (last || engine_.completed_steps() % options_.evaluate_every == 0))
          evaluate(log, progress);
        checkpoints_.after_step(engine_);
      }
      if (trains_nothing_ && options_.evaluate_every > 0) evaluate(log, progress);
    }
    engine_.drain();
    write_log([&] { log.finish(); });
    checkpoints_.finish(engine_);
  }

  EngineGroup& engine() { return engine_; }
  double pinning_seconds() const {
    double seconds = 0;
    for (const auto& device : devices_) seconds += device->counters().pinning_seconds;
    return seconds;
  }
  const RunStatistics& statistics() const { return statistics_; }
  RunRecorder& recorder() { return recorder_; }

 private:
  template <class Action>
  void write_log(Action action) {
    if (logs_) logs_ = failures_.spare(action);
  }

  // Before the step's checkpoint, so that a run which goes on from that lacks no evaluation in its log.
  void evaluate(StepLog& log, Progress& progress) {
    engine_.drain();  // what a step still has to do is its own time
    Laps laps;
    std::optional<Underway> work;
    if (trains_nothing_)
      work.emplace("evaluating", fmt::format("at most {} samples", grouped(options_.evaluation_samples)));
    const Evaluation evaluation = task_.evaluate(reader_of(model_.graph, engine_));
    work.reset();
    EvaluationRecord record{engine_.completed_steps(), evaluation, laps.lap()};
    if (options_.keep_best && !trains_nothing_)
      record.best = checkpoints_.evaluated(engine_, evaluation.loss);
    write_log([&] { log.write(record); });
    recorder_.add(record);
    print(fmt::format("{}evaluation    {}{}\n", progress.finish(), evaluation.text,
                      record.best.value_or(false) ? "; the best so far" : ""));
  }

  StepRecord make_step(std::uint64_t step) {
    const auto values = task_.inputs(step);
    std::vector<InputData> inputs;
    for (std::size_t i = 0; i < values.size(); ++i)
      inputs.push_back({model_.built.inputs[i].value.id, values[i]});
    StepRecord record;
    record.learning_rate = learning_rate(schedule_of(options_), step);
    const bool on_card = devices_.front()->info().backend == "cuda";
    const AttentionUse before = on_card ? attention_use() : AttentionUse{};
    try {
      record.report = engine_.step(inputs, {record.learning_rate, options_.speculate, loss_scale_});
    } catch (const NonFinite& error) {
      throw Error(divergence_message(error.finding(), options_, checkpoints_.last_before(engine_)));
    }
    record.unpinned_bytes = unpinned_bytes_;
    record.loss_scale = loss_scale_;
    if (loss_scale_) checkpoints_.scaled(*(loss_scale_ = next(*loss_scale_, record.report.overflowed)));
    if (on_card) record.attention = launches_since(before, attention_use());
    record.tokens_per_second = static_cast<double>(setup_.tokens_per_step()) / record.report.seconds;
    return record;
  }

  const Setup& setup_;
  const Options& options_;
  const Model& model_;
  Task& task_;
  RunCheckpoints& checkpoints_;
  Failures& failures_;
  bool logs_ = true;  // until that fails
  const bool trains_nothing_;
  std::optional<LossScale> loss_scale_;  // of the next step, in fp16
  std::vector<std::unique_ptr<Device>> devices_;
  EngineGroup engine_;
  const Bytes unpinned_bytes_;
  RunStatistics statistics_;
  RunRecorder recorder_;
};

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

// What ends a run early stands on its page, with the steps up to there.
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

RunDevice prepare(Options& options, Model& model, const Task& task) {
  const Underway work(options.machine.empty() ? "calibrating" : "opening", "the device");
  Graph& graph = model.planned();
  RunDevice prepared = prepare_device(options, graph, [&](GraphBuilder& builder, const GptConfig& sizes) {
    return task.build(builder, sizes);
  });
  if (!prepared.profile.empty()) set_seconds(prepared.profile, prepared.machine, graph);
  share_host(prepared, options.devices, graph);
  return prepared;
}

int stopped_before_steps() {
  print(fmt::format("\nstopped by {} before the first step\n", interrupted_by()));
  return interrupted_code;
}

}  // namespace

int train(const Options& given) {
  Options options = given;
  set_parallel_threads(options.threads);
  check_distinct(options);
  watch_interrupts();
  const std::unique_ptr<Task> task = make_task(options);
  count_epochs(options, *task);
  std::optional<Outputs> outputs;
  const OnAbandon undo([&] { outputs.reset(); });  // which nothing that is told as under way uses
  outputs.emplace(options);
  RunCheckpoints checkpoints(options, *task);
  Model model = build_model(*task, options);
  const InitialModel initial(options, model.graph);
  checkpoints.take_graph(model.graph);
  Laps laps;
  RunDevice prepared = prepare(options, model, *task);

  Setup setup;
  setup.options = &options;
  setup.graph = &model.planned();
  setup.model = &model.graph;
  setup.machine = prepared.machine;
  setup.fitted = prepared.fitted;
  setup.device = prepared.which;
  setup.planned_for = prepared.planned_for;
  setup.start.device = laps.lap();
  const Plan plan = plan_step(model, options, setup);
  setup.start.plan = laps.lap();
  setup.plan = &plan;
  setup.data = task->data();
  setup.epoch_samples = task->samples();
  print(printable_lines(setup_table(setup)));
  outputs->plan.write(to_json(plan));
  outputs->plan.commit();
  if (options.plan_only) return 0;
  if (interrupted()) return stopped_before_steps();

  print("\n");
  Failures failures(options.kind);
  laps.lap();
  const bool on_card = prepared.device != nullptr;
  require_host_memory(host_need(options, model.graph, plan, on_card), read_host_limits());
  std::optional<Underway> work(std::in_place, "preparing", "memory and weights");
  Trainer trainer(setup, model, *task, checkpoints, prepared, failures);
  setup.start.engine = laps.lap();
  setup.start.pinning = trainer.pinning_seconds();
  const std::string loaded = checkpoints.resumes() ? "" : initial.load(model.graph, trainer.engine());
  const std::string begun = checkpoints.begin(trainer.engine());
  work.reset();
  print(loaded + begun + unpinned_note(plan, setup.machine, trainer.engine().unpinned()));
  run_or_report(trainer, setup, *outputs, failures);
  if (trainer.engine().completed_steps() < options.steps) trainer.recorder().stop("by " + interrupted_by());
  if (trainer.statistics().steps() > 0) print('\n' + summary(setup, trainer.statistics()));
  failures.spare([&] {
    write_weights(outputs->weights, model.graph, [&](TensorId id) { return trainer.engine().read(id); });
  });
  failures.spare([&] { print(outputs->exported.write(*task, model.graph, trainer.engine(), initial)); });
  failures.spare([&] { write_report(outputs->report, setup, trainer); });
  failures.spare([&] { write_trace(outputs->trace, setup, trainer.engine()); });
  if (!interrupted()) print_sample(options, *task, reader_of(model.graph, trainer.engine()));
  if (interrupted())
    print(fmt::format("\nstopped by {}; what was asked for is written as of the last finished step\n",
                      interrupted_by()));
  failures.spare([&] { checkpoints.require_saved(); });
  if (failures.any()) return failed_code;
  return interrupted() ? interrupted_code : 0;
}

}  // namespace stowage::samples
