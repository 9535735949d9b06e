#include "samples/run/evaluate_alone.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "samples/report/report.h"
#include "samples/run/device_evaluation.h"
#include "samples/run/run_device.h"
#include "samples/run/run_needs.h"
#include "samples/run/trainer.h"
#include "src/base/laps.h"
#include "src/base/printable.h"
#include "stowage/engine_group.h"
#include "stowage/error.h"
#include "stowage/planner.h"
#include "tools/answer/plan_answer.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

// Fills the parameters of `graph` from the checkpoint's values, which are those of `training`.
void load_parameters(const CheckpointValues& values, const Graph& training, const Graph& graph,
                     EngineGroup& engine) {
  std::map<std::string_view, TensorId> there;
  for (TensorId id = 0; id < training.tensors.size(); ++id)
    if (training.tensor(id).kind == TensorKind::parameter) there[training.tensor(id).name] = id;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind != TensorKind::parameter) continue;
    const TensorId stored = there.at(tensor.name);
    engine.fill(id, [&](Bytes offset, std::span<std::byte> piece) { values.read(stored, offset, piece); });
  }
}

Plan plan_alone(const Graph& graph, const Options& options, const RunDevice& prepared,
                const DataDescription& data, std::uint64_t batches) {
  std::optional<Underway> work(std::in_place, "planning", "the evaluation");
  PlanOptions how = options.plan;
  how.optimizer_in_backward = false;  // there is none
  Planner planner(graph, prepared.machine, how);
  Answer answer = planner.answer(options.budget);
  if (const auto* infeasible = std::get_if<Infeasible>(&answer.outcome))
    throw InvalidInput(infeasible_message(*infeasible, how.policy));
  work.reset();
  const Plan& plan = std::get<Plan>(answer.outcome);
  Lines lines;
  lines.add("model", "{} parameters, {}, evaluated alone", grouped(parameter_count(graph).all),
            to_string(options.type));
  lines.add("text", "{}", data.text);
  lines.add("device", "{}", prepared.which);
  lines.gap();
  add_need(lines, {answer.need, answer.minimum, options.budget.device, prepared.machine.overhead_bytes, 0});
  lines.add("plan", "peak {} ({} bytes); host {}, of it {} pinned", format_bytes(answer.peak), answer.peak,
            format_bytes(plan.host_bytes), format_bytes(plan.pinned_bytes));
  lines.add("predicted", "{} batch{} of {}", grouped(batches), batches == 1 ? "" : "es",
            format_seconds(plan.predicted_step_seconds));
  print(printable_lines(std::move(lines).text() + '\n'));
  return std::get<Plan>(std::move(answer.outcome));
}

}  // namespace

bool evaluates_alone(const Options& options, const Task& task) {
  const bool writes =
      options.plan_only || options.sample_tokens > 0 ||
      !(options.plan_file.empty() && options.trace_file.empty() && options.report_file.empty() &&
        options.weights_file.empty() && options.export_folder.empty());
  const bool asks_more = is_emulated(options.plan.policy) || options.verify;
  return options.trains_nothing && options.evaluate_every > 0 && !writes && !asks_more &&
         options.devices == 1 && options.evaluate_on != EvaluatedOn::cpu &&
         task.evaluation_model().has_value();
}

void evaluate_alone(Options& options, Task& task, const Graph& training, const RunCheckpoints& checkpoints,
                    const InitialModel& initial, StepLog& log, Job& job) {
  EvaluationModel model = *task.evaluation_model();
  RunDevice prepared;
  prepared.cards = open_run_cards(options, job);
  {
    const Underway work("calibrating", "the device");
    prepare_device(prepared, options, model.graph);
    if (!prepared.profile.empty()) set_seconds(prepared.profile, prepared.machine, model.graph);
  }
  const Plan plan = plan_alone(model.graph, options, prepared, task.data(), task.evaluation_batches());
  require_host_memory(host_need(options, model.graph, plan, !prepared.cards.here.empty(), 1),
                      read_host_limits());
  const auto devices = open_run_devices(prepared, options);
  std::optional<Underway> work(std::in_place, "preparing", "memory and weights");
  EngineOptions own;
  own.seed = options.seed;
  own.initialise = options.init.empty() && !checkpoints.resumes();
  own.pageable_fallback = options.pageable_fallback;
  own.machine = prepared.machine;
  EngineGroup engine(*devices.front(), model.graph, plan, own);
  std::string begun = checkpoints.notes();
  if (checkpoints.resumes())
    load_parameters(checkpoints.values(), training, model.graph, engine);
  else
    begun += initial.load(model.graph, engine);
  work.reset();
  print(printable_lines(begun));
  constexpr std::uint64_t all_lines = std::numeric_limits<std::uint64_t>::max();
  log.start(all_lines, task.measures(), checkpoints.first_loss_scale().has_value());
  Laps laps;
  work.emplace("evaluating", fmt::format("at most {} samples", grouped(options.evaluation_samples)));
  const Evaluation evaluation =
      task.evaluate_by([&](const auto& values) { return loss_of(engine, model.built, values); });
  work.reset();
  print(fmt::format("evaluation    {}\n", evaluation.text));
  log.write(EvaluationRecord{checkpoints.first_step(), evaluation, laps.lap()});
  log.finish();
}

}  // namespace stowage::samples
