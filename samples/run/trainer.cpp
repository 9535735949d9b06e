#include "samples/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "samples/options/initial_sizes.h"
#include "samples/options/schedule.h"
#include "samples/report/report.h"
#include "samples/run/stored_model.h"
#include "src/base/laps.h"
#include "src/models/table_blocks.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "tools/console/terminal.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

constexpr std::uint64_t all_steps = std::numeric_limits<std::uint64_t>::max();

// A BERT's file may lack its heads.
bool needs_initial_values(const Options& options) {
  return options.init.empty() || options.program == Program::train_bert;
}

// Ends a line that is being rewritten, whatever ends the run.
struct LineEnd {
  Progress& progress;
  ~LineEnd() { print(progress.finish()); }
};

EngineGroup make_engine(const Devices& devices, const Setup& setup, const Model& model,
                        const EngineOptions& options) {
  if (devices.communicator)
    return EngineGroup(*devices.all.front(), *devices.communicator, model.graph, model.ranks.front(),
                       *setup.plan, options);
  std::vector<Device*> all;
  for (const auto& device : devices.all) all.push_back(device.get());
  return EngineGroup(all, model.graph, model.ranks, *setup.plan, options, {.peer = setup.machine.peer});
}

}  // namespace

Model build_model(const Options& options, int rank) {
  return about_initial(options, [&] {
    const auto build = [&](const ModelConfig& sizes, BuiltModel& built) {
      GraphBuilder builder(options.type);
      built = options.family->build(builder, sizes);
      return builder.finish(built.loss, optimizer_of(options));
    };
    Model model;
    model.graph = build(options.model, model.built);
    if (options.devices == 1) return model;
    ModelConfig sizes = options.model;
    sizes.ranks = options.devices;
    const std::int64_t here = options.devices / options.processes;
    for (std::int64_t i = 0; i < here; ++i) {
      BuiltModel built;
      sizes.rank = rank * here + i;
      model.ranks.push_back(build(sizes, built));
    }
    return model;
  });
}

ReadParameter reader_of(const Graph& graph, EngineGroup& engine) {
  return [&](const std::string& name) {
    std::vector<TensorId> blocks;
    Bytes bytes = 0;  // once narrow types are widened
    for (TensorId id = 0; id < graph.tensors.size(); ++id) {
      const Tensor& tensor = graph.tensor(id);
      if (tensor.kind != TensorKind::parameter || name_of_table(tensor.name) != name) continue;
      blocks.push_back(id);
      bytes += tensor.bytes() * (size_of(tensor.type) == 2 ? 2 : 1);
    }
    std::vector<std::byte> all;
    if (blocks.size() > 1) all.reserve(bytes);
    for (const TensorId id : blocks) {
      std::vector<std::byte> value = engine.read(id);
      if (const DataType type = graph.tensor(id).type; size_of(type) == 2) value = widened(type, value);
      if (blocks.size() == 1) return value;
      all.insert(all.end(), value.begin(), value.end());
    }
    return all;
  };
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

Trainer::Trainer(const Setup& setup, const Model& model, Task& task, RunCheckpoints& checkpoints,
                 const Devices& devices, const EvaluationPlan* evaluation, Failures& failures, Job& job)
    : setup_(setup),
      options_(*setup.options),
      model_(model),
      task_(task),
      checkpoints_(checkpoints),
      failures_(failures),
      job_(job),
      trains_nothing_(options_.trains_nothing),
      loss_scale_(checkpoints.first_loss_scale()),
      devices_(devices),
      engine_(make_engine(
          devices, setup, model,
          {.seed = options_.seed,
           .measurement = options_.trace_file.empty() ? Measurement::stalls : Measurement::timeline,
           .initialise = needs_initial_values(options_) && !checkpoints.resumes(),
           .first_step = checkpoints.first_step(),
           .verify_recompute = options_.verify,
           .pageable_fallback = options_.pageable_fallback,
           .machine = setup.machine,
           .kernels = {},
           .host_kernels = {}})),
      unpinned_bytes_(unpinned_of(*setup.plan, engine_.unpinned()).bytes) {
  if (evaluation == nullptr) return;
  EngineOptions own;
  own.pageable_fallback = options_.pageable_fallback;
  own.machine = setup.machine;
  own.measurement = Measurement::step;
  evaluation_.emplace(engine_.only(), *evaluation, own);
}

void Trainer::start_log(StepLog& log) {
  const std::uint64_t first = engine_.completed_steps();
  std::exception_ptr held;
  write_log([&] {
    std::string lines;
    try {
      lines = log.start(trains_nothing_ ? all_steps : first, task_.measures(), loss_scale_.has_value());
    } catch (const InvalidInput&) {
      held = std::current_exception();
    }
    recorder_.add_before(first, lines);
  });
  if (held) std::rethrow_exception(held);
}

void Trainer::run(StepLog& log) {
  Progress progress({.first_step = engine_.completed_steps(),
                     .steps = options_.steps,
                     .tokens_per_step = setup_.tokens_per_step(),
                     .budget = options_.budget.device,
                     .machine = setup_.machine,
                     // Launchers give their processes a terminal that ends in a file as well.
                     .columns = job_.size() > 1 ? 0 : terminal_columns(stdout)});
  {
    const LineEnd line_end{progress};
    make_steps(log, progress);
    if (trains_nothing_ && options_.evaluate_every > 0) evaluate(log, progress);
  }
  engine_.drain();
  if (options_.devices > 1) recorder_.set_rows(rank_rows_ = gather_rows());
  write_log([&] {
    for (const RankRow& row : rank_rows_) log.write(row);
    log.finish();
  });
  engine_.on_first([&] { print(checkpoints_.finish(engine_)); });
}

void Trainer::make_steps(StepLog& log, Progress& progress) {
  share_patience();
  if (engine_.completed_steps() < options_.steps) measure_codes(log, progress);
  while (engine_.completed_steps() < options_.steps && !out_of_patience_ && !job_.stops()) {
    const StepRecord record = make_step(engine_.completed_steps());
    if (record.attention) {
      statistics_.add(*record.attention);
      checkpoints_.made_with(attention_methods(*record.attention));
    }
    write_log([&] { log.write(record); });
    print(progress.add(record.report));
    statistics_.add(record.report);
    add_reports();
    recorder_.add(record);
    const bool last = engine_.completed_steps() == options_.steps;
    if (options_.evaluate_every > 0 && (last || engine_.completed_steps() % options_.evaluate_every == 0))
      evaluate(log, progress);
    if (options_.checkpoint_folder.empty()) continue;
    engine_.on_first([&] {
      const std::string line = checkpoints_.after_step(engine_);
      if (!line.empty()) print(progress.finish() + line);
    });
  }
}

void Trainer::add_reports() {
  const auto reports = engine_.reports();
  of_ranks_.resize(reports.size());
  for (std::size_t i = 0; i < reports.size(); ++i) of_ranks_[i].add(reports[i]);
}

// Either every process has one rank, or this process has all.
std::vector<RankRow> Trainer::gather_rows() {
  std::string own;
  for (std::size_t i = 0; i < of_ranks_.size(); ++i)
    own += to_json_line(row_of(static_cast<std::uint64_t>(job_.rank()) + i, setup_, of_ranks_[i])) + '\n';
  std::string all;
  for (const std::string& text : job_.from_each(own)) all += text;
  std::vector<RankRow> rows = rows_of_json_lines(all);
  set_waiting(rows);
  return rows;
}

double Trainer::pinning_seconds() const {
  double seconds = 0;
  for (const auto& device : devices_.all) seconds += device->counters().pinning_seconds;
  return seconds;
}

// Called before the step's checkpoint, so that the log of a run resumed from it lacks no evaluation.
void Trainer::evaluate(StepLog& log, Progress& progress) {
  engine_.drain();  // time of running steps must not count as the evaluation's
  engine_.on_first([&] { evaluate_here(log, progress); });
  share_patience();
  if (!trains_nothing_) measure_codes(log, progress);
}

// Compares coded activations with exact ones for the weights of now and the next step's first sample.
void Trainer::measure_codes(StepLog& log, Progress& progress) {
  if (!options_.model.code_activations) return;
  engine_.drain();
  engine_.on_first([&] {
    Laps laps;
    CodeNoiseRecord record{engine_.completed_steps(),
                           code_noise(model_.graph, options_, task_.inputs(engine_.completed_steps()),
                                      reader_of(model_.graph, engine_)),
                           0};
    record.seconds = laps.lap();
    write_log([&] { log.write(record); });
    recorder_.add(record);
    statistics_.set_codes(fmt::format("{}, {}", describe(record), when(record)));
    print(fmt::format("{}codes         {}\n", progress.finish(), describe(record)));
  });
}

// The leader alone evaluates and counts. All ranks come here behind the same steps.
void Trainer::share_patience() {
  if (options_.patience == 0 || trains_nothing_) return;
  out_of_patience_ = !job_.from_leader(checkpoints_.patience().is_over() ? "over" : "").empty();
}

void Trainer::evaluate_here(StepLog& log, Progress& progress) {
  Laps laps;
  std::optional<Underway> work;
  if (trains_nothing_)
    work.emplace("evaluating", fmt::format("at most {} samples", grouped(options_.evaluation_samples)));
  const Evaluation evaluation =
      evaluation_ ? evaluation_->evaluate(task_) : task_.evaluate(reader_of(model_.graph, engine_));
  work.reset();
  EvaluationRecord record{engine_.completed_steps(), evaluation, laps.lap()};
  if (!trains_nothing_) {
    const bool best = checkpoints_.evaluated(engine_, evaluation.loss);
    if (options_.keep_best) record.best = best;
    if (options_.patience > 0) record.since_best = checkpoints_.patience().since();
    record.stops = checkpoints_.patience().is_over();
  }
  write_log([&] { log.write(record); });
  recorder_.add(record);
  print(fmt::format("{}evaluation    {}{}\n", progress.finish(), evaluation.text,
                    record.best.value_or(false) ? "; the best so far" : ""));
}

StepRecord Trainer::make_step(std::uint64_t step) {
  const auto values = task_.inputs(step);
  std::vector<InputData> inputs;
  for (std::size_t i = 0; i < values.size(); ++i)
    inputs.push_back({model_.built.inputs[i].value.id, values[i]});
  StepRecord record;
  record.learning_rate = learning_rate(schedule_of(options_), step);
  const bool on_card = devices_.all.front()->info().backend == "cuda";
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

}  // namespace stowage::samples
