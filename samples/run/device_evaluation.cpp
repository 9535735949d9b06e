#include "samples/run/device_evaluation.h"

#include <fmt/format.h>

#include <utility>
#include <variant>
#include <vector>

#include "stowage/error.h"
#include "stowage/planner.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

// Bytes of the plan's host buckets that are not parameters: the evaluation takes them beside the training's.
Bytes own_host_bytes(const Plan& plan) {
  Bytes bytes = 0;
  for (const Bucket& bucket : plan.buckets)
    if (bucket.kind != TensorKind::parameter && bucket.on_host()) bytes += bucket.bytes;
  return bytes;
}

// Host bytes that an evaluation may take beside the training's, for its inputs and its loss.
Bytes most_host_bytes(const Graph& graph) {
  constexpr Bytes small_values = 1_MiB;
  Bytes bytes = small_values;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind == TensorKind::input) bytes += tensor.bytes();
  return bytes;
}

// Returns the reason for which no device evaluates; empty if one may.
std::string why_on_cpu(const Task& task, const Options& options) {
  if (options.evaluate_on == EvaluatedOn::cpu) return "--evaluate-on cpu";
  if (options.devices > 1) return "several devices train together";
  if (!task.evaluation_model()) return "its measures need more than a loss";
  return "";
}

}  // namespace

std::optional<EvaluationPlan> plan_evaluation(const Task& task, const Options& options, const Graph& training,
                                              const Plan& plan, const Machine& machine,
                                              const OpProfile& profile, std::string& line) {
  const auto on_cpu = [&](const std::string& why) -> std::optional<EvaluationPlan> {
    if (options.evaluate_on == EvaluatedOn::device)
      throw InvalidInput(fmt::format("--evaluate-on device: {}; leave it out, and the CPU evaluates", why));
    line = fmt::format("on the CPU, in f32: {}", why);
    return std::nullopt;
  };
  if (const std::string why = why_on_cpu(task, options); !why.empty()) return on_cpu(why);
  const Underway work("planning", "evaluations");
  EvaluationPlan made{*task.evaluation_model(), {}};
  Graph planned = planned_beside(made.model.graph, training, plan);
  if (!profile.empty()) set_seconds(profile, machine, planned);
  const Bytes free = free_between_steps(plan).bytes();
  Planner planner(planned, machine);
  Budget budget{.device = machine.budget_for(free)};
  Answer answer = planner.answer(budget);
  const auto* first = std::get_if<Plan>(&answer.outcome);
  if (const Bytes most = most_host_bytes(made.model.graph);
      first != nullptr && own_host_bytes(*first) > most) {
    budget.host = first->host_bytes - own_host_bytes(*first) + most;
    answer = planner.answer(budget);
  }
  const auto* none = std::get_if<Infeasible>(&answer.outcome);
  if (none != nullptr && none->host)
    return on_cpu(
        fmt::format("in the {} of the device that are free between steps it would move values to the host",
                    format_bytes(free)));
  if (none != nullptr)
    return on_cpu(fmt::format("it takes {} of the device, and {} are free between steps",
                              format_bytes(answer.minimum - machine.overhead_bytes), format_bytes(free)));
  made.plan = std::get<Plan>(std::move(answer.outcome));
  const std::uint64_t batches = task.evaluation_batches();
  line = fmt::format(
      "on the device, in {} that are free between steps: {} batch{} of {} (predicted), {} on the "
      "host",
      format_bytes(made.plan.device_peak_bytes), grouped(batches), batches == 1 ? "" : "es",
      format_seconds(made.plan.predicted_step_seconds), format_bytes(own_host_bytes(made.plan)));
  return made;
}

DeviceEvaluation::DeviceEvaluation(Engine& training, const EvaluationPlan& plan, const EngineOptions& options)
    : plan_(plan), engine_(training, plan.model.graph, plan.plan, options) {}

Evaluation DeviceEvaluation::evaluate(Task& task) {
  return task.evaluate_by([&](const auto& values) { return loss_of(engine_, plan_.model.built, values); });
}

}  // namespace stowage::samples
