// The JSON of `stowage parallel`.
#include "tools/answer/parallel_answer.h"

namespace stowage {
namespace {

using AnswerJson = nlohmann::ordered_json;

AnswerJson if_set(bool set, const AnswerJson& value) { return set ? value : AnswerJson(nullptr); }

const ParallelLayer& layer_at(const ParallelCosts& costs, int layer) {
  return costs.layers[static_cast<std::size_t>(layer)];
}

AnswerJson variant_names(const ParallelCosts& costs, const PlacedStage& stage, const StageDetail& detail) {
  AnswerJson names = AnswerJson::array();
  for (int layer = stage.first; layer < stage.last; ++layer) {
    const int variant = detail.variants[static_cast<std::size_t>(layer - stage.first)];
    names.push_back(layer_at(costs, layer).variants[static_cast<std::size_t>(variant)].name);
  }
  return names;
}

AnswerJson stage_json(const ParallelCosts& costs, const ParallelCandidate& candidate, std::size_t s) {
  const PlacedStage& stage = candidate.pipeline.stages[s];
  const StageDetail& detail = candidate.stages[s];
  const StageLayout& layout = candidate.layouts[s];
  AnswerJson json{{"first_layer", layer_at(costs, stage.first).name},
                  {"last_layer", layer_at(costs, stage.last - 1).name},
                  {"layers", stage.last - stage.first},
                  {"devices", layout.devices},
                  {"parts", if_set(!layout.mixed, layout.parts)},
                  {"split", if_set(!layout.mixed, layout.split)},
                  {"variants", variant_names(costs, stage, detail)},
                  {"forward_seconds", detail.forward_seconds},
                  {"backward_seconds", detail.backward_seconds},
                  {"front_send_seconds", detail.front_send_seconds},
                  {"back_send_seconds", detail.back_send_seconds},
                  {"exchange_seconds", detail.exchange_seconds},
                  {"pace_seconds", stage.option.pace},
                  {"in_flight", detail.in_flight},
                  {"bytes", detail.bytes}};
  json["bubble"] = candidate.bubbles.empty() ? AnswerJson(nullptr) : AnswerJson(candidate.bubbles[s]);
  return json;
}

std::string_view schedule_word(PipelineSchedule schedule) {
  if (schedule == PipelineSchedule::gpipe) return "gpipe";
  return schedule == PipelineSchedule::interleaved ? "interleaved" : "1f1b";
}

AnswerJson schedule_json(const ScheduledStep& step) {
  return {{"schedule", schedule_word(step.schedule)},
          {"virtual_stages", step.virtual_stages},
          {"outcome", to_string(step.outcome)},
          {"seconds", if_set(step.outcome == ScheduleOutcome::timed, step.seconds)}};
}

AnswerJson candidate_json(const ParallelCosts& costs, const ParallelCandidate& candidate) {
  AnswerJson stages = AnswerJson::array(), schedules = AnswerJson::array();
  for (std::size_t s = 0; s < candidate.stages.size(); ++s) stages.push_back(stage_json(costs, candidate, s));
  for (const ScheduledStep& step : candidate.schedules) schedules.push_back(schedule_json(step));
  const bool has_rate = costs.batch > 0 && candidate.step_seconds > 0;
  AnswerJson json{{"grid", candidate.grid.has_value()},
                  {"value_seconds", candidate.value},
                  {"step_seconds", candidate.step_seconds}};
  json["samples_per_second"] =
      has_rate ? AnswerJson(static_cast<double>(costs.batch) / candidate.step_seconds) : AnswerJson(nullptr);
  json["stages"] = std::move(stages);
  json["simulated"] = std::move(schedules);
  return json;
}

AnswerJson least_json(const ParallelCosts& costs, const std::optional<LeastMemory>& least) {
  if (!least) return nullptr;
  return {{"bytes", least->bytes},
          {"first_layer", layer_at(costs, least->first).name},
          {"last_layer", layer_at(costs, least->last - 1).name},
          {"devices", least->layout.devices}};
}

AnswerJson fastest_json(const ParallelCosts& costs, const ParallelAnswer& answer) {
  const auto fastest = fastest_by_simulation(costs, answer);
  if (!fastest) return nullptr;
  AnswerJson json = schedule_json(*fastest->step);
  const bool of_all = answer.best_of_all && fastest->candidate == &*answer.best_of_all;
  json["grid"] = if_set(!of_all, of_all ? 0 : fastest->candidate - answer.grids.data());
  return json;
}

AnswerJson simpler_json(const SimplerSearch& search) {
  return {{"search", search.name},
          {"step_seconds", if_set(search.step_seconds.has_value(), search.step_seconds.value_or(0))},
          {"ended_early", search.ended}};
}

}  // namespace

AnswerJson to_json(const ParallelCosts& costs, const ParallelAnswer& answer) {
  const bool feasible = answer.feasible();
  AnswerJson grids = AnswerJson::array(), simpler = AnswerJson::array();
  for (const ParallelCandidate& grid : answer.grids) grids.push_back(candidate_json(costs, grid));
  for (const SimplerSearch& each : answer.simpler) simpler.push_back(simpler_json(each));
  AnswerJson json{{"format", "stowage.parallel"},
                  {"version", 1},
                  {"feasible", feasible},
                  {"objective", to_string(costs.objective)},
                  {"schedule", to_string(costs.order)},
                  {"layers", costs.layers.size()},
                  {"devices", costs.devices},
                  {"use_all_devices", costs.use_all_devices},
                  {"batch", if_set(costs.batch > 0, costs.batch)},
                  {"micro_batches", costs.micro_batches},
                  {"memory_bytes", if_set(costs.memory != unlimited, costs.memory)},
                  {"grids_proven", answer.grids_proven},
                  {"proven", answer.proven},
                  {"stopped", answer.stopped},
                  {"bound_seconds", if_set(feasible, answer.bound)}};
  json["gap"] = feasible ? AnswerJson(answer.gap()) : AnswerJson(nullptr);
  json["work"] = answer.work;
  json["work_beside"] = answer.work_beside;
  json["grids"] = std::move(grids);
  json["best_of_all"] = answer.best_of_all ? candidate_json(costs, *answer.best_of_all) : AnswerJson(nullptr);
  json["fastest_by_simulation"] = feasible ? fastest_json(costs, answer) : AnswerJson(nullptr);
  json["simpler_searches"] = std::move(simpler);
  json["least_memory"] = least_json(costs, answer.least);
  json["least_memory_of_a_grid"] = least_json(costs, answer.least_grid);
  json["why_not"] = feasible ? AnswerJson(nullptr) : AnswerJson(refusal(costs, answer));
  return json;
}

}  // namespace stowage
