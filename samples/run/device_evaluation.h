// Evaluation on the device that trains, between its steps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "samples/task/task.h"
#include "src/machine/op_profile.h"
#include "stowage/engine.h"

namespace stowage::samples {

// The model that is evaluated, and its plan in the memory that the training's plan leaves free between steps.
struct EvaluationPlan {
  EvaluationModel model;
  Plan plan;
};

// Plans the evaluations of a run with --evaluate-every. `training` and `plan` are what the device trains;
// `profile` has times of ops. Returns nullopt if the CPU evaluates. Sets `line` to a line for the user: where
// evaluations are made, what they take, or why the CPU makes them. Throws InvalidInput for --evaluate-on
// device where there is no such plan.
std::optional<EvaluationPlan> plan_evaluation(const Task& task, const Options& options, const Graph& training,
                                              const Plan& plan, const Machine& machine,
                                              const OpProfile& profile, std::string& line);

// Returns the loss of an evaluation's batch by an Engine or an EngineGroup.
template <class AnyEngine>
double loss_of(AnyEngine& engine, const BuiltModel& built,
               const std::vector<std::span<const std::int32_t>>& values) {
  std::vector<InputData> inputs;
  for (std::size_t i = 0; i < values.size(); ++i) inputs.push_back({built.inputs[i].value.id, values[i]});
  try {
    return engine.step(inputs, {}).loss;
  } catch (const NonFinite& error) {
    return error.finding().loss;  // a loss like any other: the model has diverged
  }
}

// Evaluates beside an engine, which must outlive it.
class DeviceEvaluation {
 public:
  DeviceEvaluation(Engine& training, const EvaluationPlan& plan, const EngineOptions& options);

  Evaluation evaluate(Task& task);

 private:
  const EvaluationPlan& plan_;
  Engine engine_;
};

}  // namespace stowage::samples
