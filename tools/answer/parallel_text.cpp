// What `stowage parallel` prints, and its JSON.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/printable.h"
#include "tools/answer/parallel_answer.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

const ParallelLayer& layer_of(const ParallelCosts& costs, int layer) {
  return costs.layers[static_cast<std::size_t>(layer)];
}

std::string layers_text(const ParallelCosts& costs, const PlacedStage& stage) {
  std::string first = printable(layer_of(costs, stage.first).name);
  if (stage.last - stage.first == 1) return first;
  return fmt::format("{} .. {}", first, printable(layer_of(costs, stage.last - 1).name));
}

// The names of the variants of a stage's layers, in the order in which they first come, with their numbers.
std::vector<std::pair<std::string, int>> variants_of(const ParallelCosts& costs, const PlacedStage& stage,
                                                     const StageDetail& detail) {
  std::vector<std::pair<std::string, int>> counts;
  for (int layer = stage.first; layer < stage.last; ++layer) {
    const int variant = detail.variants[static_cast<std::size_t>(layer - stage.first)];
    const std::string& name = layer_of(costs, layer).variants[static_cast<std::size_t>(variant)].name;
    const auto same =
        std::find_if(counts.begin(), counts.end(), [&](const auto& each) { return each.first == name; });
    if (same == counts.end()) {
      counts.emplace_back(name, 1);
    } else {
      ++same->second;
    }
  }
  return counts;
}

std::string shape_text(const ParallelCandidate& candidate) {
  const std::size_t stages = candidate.pipeline.stages.size();
  const char* plural = stages == 1 ? "" : "s";
  if (!candidate.grid) return fmt::format("{} stage{}, not a grid", stages, plural);
  return fmt::format("{} stage{} x {} parts x {} split", stages, plural, candidate.grid->parts,
                     candidate.grid->split);
}

std::string rate_text(const ParallelCosts& costs, double seconds) {
  if (costs.batch == 0 || seconds <= 0) return {};
  return fmt::format(", {:.4g} samples/s", static_cast<double>(costs.batch) / seconds);
}

std::string value_text(const ParallelCosts& costs, const ParallelCandidate& candidate) {
  if (costs.objective == ParallelObjective::step)
    return fmt::format("{} a step{}", format_seconds(candidate.step_seconds),
                       rate_text(costs, candidate.step_seconds));
  return fmt::format("{} in the largest stage; {} a step{}", format_seconds(candidate.value),
                     format_seconds(candidate.step_seconds), rate_text(costs, candidate.step_seconds));
}

std::string more_text(double value, double best) {
  return fmt::format("{:+.1f} %", 100 * (value / best - 1));
}

void add_stages(std::string& text, const ParallelCosts& costs, const ParallelCandidate& candidate) {
  std::size_t width = 6;
  for (const PlacedStage& stage : candidate.pipeline.stages)
    width = std::max(width, layers_text(costs, stage).size());
  text += fmt::format("\n{:<6}{:<{}}{:>6}{:>6}{:>11}{:>11}{:>11}{:>11}{:>8}  {:<22}{:>7}  {}\n", "stage",
                      "layers", width + 1, "parts", "split", "forward", "backward", "sends", "exchange",
                      "flying", "bytes of each device", "bubble", "variants");
  for (std::size_t s = 0; s < candidate.stages.size(); ++s) {
    const PlacedStage& stage = candidate.pipeline.stages[s];
    const StageDetail& detail = candidate.stages[s];
    const StageLayout& layout = candidate.layouts[s];
    std::string variants;
    for (const auto& [name, count] : variants_of(costs, stage, detail))
      variants += fmt::format("{}{} x {}", variants.empty() ? "" : ", ", count, printable(name));
    const std::string of_limit =
        costs.memory == unlimited
            ? format_bytes(detail.bytes)
            : fmt::format("{} ({})", format_bytes(detail.bytes), share(detail.bytes, costs.memory));
    text += fmt::format("{:<6}{:<{}}{:>6}{:>6}{:>11}{:>11}{:>11}{:>11}{:>8}  {:<22}{:>7}  {}\n", s,
                        layers_text(costs, stage), width + 1,
                        layout.mixed ? "mixed" : std::to_string(layout.parts),
                        layout.mixed ? "mixed" : std::to_string(layout.split),
                        format_seconds(detail.forward_seconds), format_seconds(detail.backward_seconds),
                        format_seconds(detail.front_send_seconds + detail.back_send_seconds),
                        format_seconds(detail.exchange_seconds), detail.in_flight, of_limit,
                        candidate.bubbles.empty() ? "-" : percent(candidate.bubbles[s]), variants);
  }
}

// A schedule of a candidate, by the simulation.
struct NamedStep {
  const char* name;
  std::optional<double> seconds;
};
std::vector<NamedStep> steps_of(const SimulatedSteps& simulated) {
  return {{"GPipe", simulated.gpipe},
          {"1F1B", simulated.one_f_one_b},
          {"interleaved 2", simulated.interleaved_2},
          {"interleaved 4", simulated.interleaved_4}};
}

void add_finalists(std::string& text, const ParallelCosts& costs, const ParallelAnswer& answer) {
  std::vector<const ParallelCandidate*> all;
  for (const ParallelCandidate& grid : answer.grids) all.push_back(&grid);
  if (answer.best_of_all) all.push_back(&*answer.best_of_all);
  text += fmt::format("\n{:<36}{:>12}{:>9}   by simulation:{:>13}{:>13}{:>15}{:>15}\n", "finalist", "step",
                      "", "GPipe", "1F1B", "interleaved 2", "interleaved 4");
  std::string fastest;
  double least = infinite_seconds;
  for (const ParallelCandidate* each : all) {
    text += fmt::format("{:<36}{:>12}{:>9}                 ", shape_text(*each),
                        format_seconds(each->step_seconds), more_text(each->value, answer.best().value));
    for (const NamedStep& step : steps_of(each->simulated)) {
      const bool wide = std::string_view(step.name).starts_with("interleaved");
      text += fmt::format("{:>{}}", step.seconds ? format_seconds(*step.seconds) : "-", wide ? 15 : 13);
      if (!step.seconds || *step.seconds >= least * (1 - 1e-9)) continue;
      least = *step.seconds;
      fastest = fmt::format("{}, {}", shape_text(*each), step.name);
    }
    text += '\n';
  }
  const NamedStep own{"", costs.order == PipelineOrder::gpipe ? answer.best().simulated.gpipe
                                                              : answer.best().simulated.one_f_one_b};
  if (own.seconds && least < *own.seconds * (1 - 1e-9))
    text += fmt::format("The simulation's fastest: {}, {}.\n", fastest, format_seconds(least));
}

nlohmann::ordered_json or_null(const std::optional<double>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json candidate_json(const ParallelCosts& costs, const ParallelCandidate& candidate) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < candidate.stages.size(); ++s) {
    const PlacedStage& stage = candidate.pipeline.stages[s];
    const StageDetail& detail = candidate.stages[s];
    nlohmann::ordered_json variants = nlohmann::ordered_json::array();
    for (int layer = stage.first; layer < stage.last; ++layer) {
      const int variant = detail.variants[static_cast<std::size_t>(layer - stage.first)];
      variants.push_back(layer_of(costs, layer).variants[static_cast<std::size_t>(variant)].name);
    }
    const StageLayout& layout = candidate.layouts[s];
    stages.push_back(
        {{"first_layer", layer_of(costs, stage.first).name},
         {"last_layer", layer_of(costs, stage.last - 1).name},
         {"layers", stage.last - stage.first},
         {"devices", layout.devices},
         {"parts", layout.mixed ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(layout.parts)},
         {"split", layout.mixed ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(layout.split)},
         {"variants", std::move(variants)},
         {"forward_seconds", detail.forward_seconds},
         {"backward_seconds", detail.backward_seconds},
         {"front_send_seconds", detail.front_send_seconds},
         {"back_send_seconds", detail.back_send_seconds},
         {"exchange_seconds", detail.exchange_seconds},
         {"pace_seconds", stage.option.pace},
         {"in_flight", detail.in_flight},
         {"bytes", detail.bytes},
         {"bubble", candidate.bubbles.empty() ? nlohmann::ordered_json(nullptr)
                                              : nlohmann::ordered_json(candidate.bubbles[s])}});
  }
  return {{"grid", candidate.grid.has_value()},
          {"value_seconds", candidate.value},
          {"step_seconds", candidate.step_seconds},
          {"samples_per_second",
           costs.batch > 0 && candidate.step_seconds > 0
               ? nlohmann::ordered_json(static_cast<double>(costs.batch) / candidate.step_seconds)
               : nlohmann::ordered_json(nullptr)},
          {"simulated_seconds",
           {{"gpipe", or_null(candidate.simulated.gpipe)},
            {"1f1b", or_null(candidate.simulated.one_f_one_b)},
            {"interleaved_2", or_null(candidate.simulated.interleaved_2)},
            {"interleaved_4", or_null(candidate.simulated.interleaved_4)}}},
          {"stages", std::move(stages)}};
}

nlohmann::ordered_json least_json(const ParallelCosts& costs, const std::optional<LeastMemory>& least) {
  if (!least) return nullptr;
  return {{"bytes", least->bytes},
          {"first_layer", layer_of(costs, least->first).name},
          {"last_layer", layer_of(costs, least->last - 1).name},
          {"devices", least->layout.devices}};
}

}  // namespace

std::string describe(const ParallelCosts& costs, const ParallelAnswer& answer) {
  Lines lines;
  lines.add("layers", "{} on {}{} devices, {} micro-batches, {} of each device", costs.layers.size(),
            costs.use_all_devices ? "all of " : "", costs.devices,
            grouped(static_cast<std::uint64_t>(costs.micro_batches)), exact(costs.memory));
  if (!answer.feasible()) {
    lines.add("answer", "{}", refusal(costs, answer));
    return std::move(lines).text();
  }
  const ParallelCandidate& best = answer.best();
  lines.add("best grid", "{}",
            answer.grids.empty() ? "none" : shape_text(best) + ": " + value_text(costs, best));
  if (answer.grids.empty() && answer.least_grid)
    lines.add("", "the least memory in which a grid fits is {} of each device",
              exact(answer.least_grid->bytes));
  if (answer.best_of_all) {
    lines.add("best of all", "{}: {}", shape_text(*answer.best_of_all),
              value_text(costs, *answer.best_of_all));
  } else {
    lines.add("best of all", "nothing is better than this grid{}", answer.proven ? "" : " so far");
  }
  if (answer.proven) {
    lines.add("search", "proven in {} combinations", grouped(answer.work));
  } else {
    lines.add("search", "{} after {} combinations: the best so far; nothing is below {}",
              answer.stopped ? "stopped" : "ended by its limit", grouped(answer.work),
              format_seconds(answer.bound));
  }
  for (const SimplerSearch& each : answer.simpler) {
    lines.add("beside it", "{}: {}", each.name,
              each.step_seconds ? fmt::format("{} a step, {}", format_seconds(*each.step_seconds),
                                              more_text(*each.step_seconds, best.step_seconds))
                                : "finds no pipeline");
  }
  std::string text = std::move(lines).text();
  add_stages(text, costs, best);
  add_finalists(text, costs, answer);
  return text;
}

nlohmann::ordered_json to_json(const ParallelCosts& costs, const ParallelAnswer& answer) {
  nlohmann::ordered_json grids = nlohmann::ordered_json::array();
  for (const ParallelCandidate& grid : answer.grids) grids.push_back(candidate_json(costs, grid));
  nlohmann::ordered_json simpler = nlohmann::ordered_json::array();
  for (const SimplerSearch& each : answer.simpler)
    simpler.push_back({{"search", each.name}, {"step_seconds", or_null(each.step_seconds)}});
  return {{"format", "stowage.parallel"},
          {"version", 1},
          {"feasible", answer.feasible()},
          {"objective", to_string(costs.objective)},
          {"devices", costs.devices},
          {"micro_batches", costs.micro_batches},
          {"memory_bytes", costs.memory == unlimited ? nlohmann::ordered_json(nullptr)
                                                     : nlohmann::ordered_json(costs.memory)},
          {"proven", answer.proven},
          {"stopped", answer.stopped},
          {"bound_seconds",
           answer.feasible() ? nlohmann::ordered_json(answer.bound) : nlohmann::ordered_json(nullptr)},
          {"work", answer.work},
          {"grids", std::move(grids)},
          {"best_of_all",
           answer.best_of_all ? candidate_json(costs, *answer.best_of_all) : nlohmann::ordered_json(nullptr)},
          {"simpler_searches", std::move(simpler)},
          {"least_memory", least_json(costs, answer.least)},
          {"least_memory_of_a_grid", least_json(costs, answer.least_grid)},
          {"why_not", answer.feasible() ? nlohmann::ordered_json(nullptr)
                                        : nlohmann::ordered_json(refusal(costs, answer))}};
}

std::string trace_of_step(const ParallelCosts& costs, const ParallelAnswer& answer) {
  const ParallelCandidate& best = answer.best();
  PipelineQuestion question = simulation_of(costs, best);
  const std::int64_t stages = static_cast<std::int64_t>(question.times.size());
  if (question.micro_batches > most_traced_events / 2 / stages) {
    throw InvalidInput(fmt::format(
        "--trace: {} micro-batches in {} stages are more than {} events; give costs with fewer micro-batches",
        question.micro_batches, stages, most_traced_events));
  }
  question.keep_events = true;
  nlohmann::json events = nlohmann::json::array();
  constexpr double microseconds = 1e6;
  for (std::int64_t s = 0; s < stages; ++s) {
    const PlacedStage& stage = best.pipeline.stages[static_cast<std::size_t>(s)];
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 0},
                      {"tid", s},
                      {"args", {{"name", fmt::format("stage {}: {}", s, layers_text(costs, stage))}}}});
  }
  for (const PipelineEvent& event : simulate_pipeline(question).events) {
    events.push_back(
        {{"ph", "X"},
         {"name", fmt::format("{} {}", event.backward ? "backward" : "forward", event.micro_batch)},
         {"pid", 0},
         {"tid", event.stage},
         {"ts", event.begin_seconds * microseconds},
         {"dur", (event.end_seconds - event.begin_seconds) * microseconds}});
  }
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + '\n';
}

}  // namespace stowage
