#include "tools/cli/max_model.h"

#include <fmt/format.h>

#include "stowage/error.h"

namespace stowage {
namespace {

void ask_of(PlanQuestion& question, const GptSize& size, const ModelWords& words, DataType type) {
  question.model = model_spec(size, words, type);
  question.take(build(*question.model));
  question.source = "--max-model";
}

// Bytes of the tensors that every plan keeps in host memory or on the device.
Bytes state_bytes(const Graph& graph) {
  Bytes bytes = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter || tensor.kind == TensorKind::optimizer_state)
      bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace

bool fits(const PlanQuestion& question) {
  const Budget budget = question.budget_of_each();
  if (budget.device != unlimited &&
      minimum_bytes(question.graph, question.rates, question.options) > budget.device)
    return false;
  if (budget.host == unlimited) return true;
  // Without a byte of either memory to spare for anything else.
  const Bytes state = state_bytes(question.graph);
  if (budget.device != unlimited && state > budget.device && state - budget.device > budget.host)
    return false;
  return Planner(question.graph, question.rates, question.options).fits(budget);
}

MaxModel max_model(PlanQuestion question, const std::vector<GptSize>& ladder, const ModelWords& words,
                   DataType type, const Progress& progress, Plan* plan) {
  if (question.budget.device == unlimited)
    throw InvalidInput(
        "--max-model: every model fits an unlimited device; give --device-memory or a machine with "
        "--machine");
  std::size_t fitting = 0;  // sizes below this one fit
  std::size_t end = ladder.size();
  while (fitting < end) {
    const std::size_t middle = fitting + (end - fitting) / 2;
    progress(fmt::format("{} layers, width {}", ladder[middle].layers, ladder[middle].width));
    ask_of(question, ladder[middle], words, type);
    if (fits(question))
      fitting = middle + 1;
    else
      end = middle;
  }
  const std::size_t place = fitting == 0 ? 0 : fitting - 1;
  progress(fmt::format("{} layers, width {}", ladder[place].layers, ladder[place].width));
  ask_of(question, ladder[place], words, type);
  PlanAnswer found = answer(question, plan);
  return {std::move(question), std::move(found), place};
}

}  // namespace stowage
