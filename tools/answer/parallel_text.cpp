// The text that `stowage parallel` prints.
#include <fmt/format.h>

#include <algorithm>

#include "src/base/printable.h"
#include "tools/answer/parallel_answer.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr std::size_t longest_name = 24;  // characters in a table

const ParallelLayer& layer_of(const ParallelCosts& costs, int layer) {
  return costs.layers[static_cast<std::size_t>(layer)];
}

std::string layers_text(const ParallelCosts& costs, int first, int last) {
  std::string name = printable(layer_of(costs, first).name, longest_name);
  if (last - first == 1) return name;
  return fmt::format("{} .. {}", name, printable(layer_of(costs, last - 1).name, longest_name));
}

// Returns the names of a stage's variants in the order in which they first come: "5 x rebuilt, 2 x kept".
std::string variants_text(const ParallelCosts& costs, const PlacedStage& stage, const StageDetail& detail) {
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
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, printable(name, longest_name));
  return text;
}

std::string count_text(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string shape_text(const ParallelCandidate& candidate) {
  const std::string stages = count_text(candidate.stages.size(), "stage");
  if (!candidate.grid) return stages + ", not a grid";
  return fmt::format("{} x {} x {} split", stages,
                     count_text(static_cast<std::size_t>(candidate.grid->parts), "part"),
                     candidate.grid->split);
}

std::string step_text(const ParallelCosts& costs, double seconds) {
  if (costs.batch == 0 || seconds <= 0) return format_seconds(seconds) + " a step";
  return fmt::format("{} a step, {:.4g} samples/s", format_seconds(seconds),
                     static_cast<double>(costs.batch) / seconds);
}

std::string value_text(const ParallelCosts& costs, const ParallelCandidate& candidate) {
  std::string step = step_text(costs, candidate.step_seconds);
  if (costs.objective == ParallelObjective::step) return step;
  return fmt::format("{} in the largest stage; {}", format_seconds(candidate.value), step);
}

std::string more_text(double value, double best) {
  if (best <= 0) return value > best ? "more" : "+0.0 %";
  return fmt::format("{:+.1f} %", 100 * (value / best - 1));
}

std::string bytes_text(const ParallelCosts& costs, Bytes bytes) {
  if (costs.memory == unlimited) return format_bytes(bytes);
  return fmt::format("{} ({})", format_bytes(bytes), share(bytes, costs.memory));
}

void add_stages(std::string& text, const ParallelCosts& costs, const ParallelCandidate& candidate) {
  std::size_t width = 6;
  for (const PlacedStage& stage : candidate.pipeline.stages)
    width = std::max(width, layers_text(costs, stage.first, stage.last).size());
  text += fmt::format("\n{:<6}{:<{}}{:>6}{:>6}{:>8}{:>11}{:>11}{:>11}{:>11}{:>10}  {:<21}{:>7}  {}\n",
                      "stage", "layers", width + 1, "parts", "split", "devices", "forward", "backward",
                      "sends", "exchange", "in flight", "bytes of each device", "bubble", "variants");
  for (std::size_t s = 0; s < candidate.stages.size(); ++s) {
    const PlacedStage& stage = candidate.pipeline.stages[s];
    const StageDetail& detail = candidate.stages[s];
    const StageLayout& layout = candidate.layouts[s];
    text += fmt::format(
        "{:<6}{:<{}}{:>6}{:>6}{:>8}{:>11}{:>11}{:>11}{:>11}{:>10}  {:<21}{:>7}  {}\n", s,
        layers_text(costs, stage.first, stage.last), width + 1,
        layout.mixed ? "mixed" : std::to_string(layout.parts),
        layout.mixed ? "mixed" : std::to_string(layout.split), layout.devices,
        format_seconds(detail.forward_seconds), format_seconds(detail.backward_seconds),
        format_seconds(detail.front_send_seconds + detail.back_send_seconds),
        format_seconds(detail.exchange_seconds), detail.in_flight, bytes_text(costs, detail.bytes),
        candidate.bubbles.empty() ? "-" : percent(candidate.bubbles[s]), variants_text(costs, stage, detail));
  }
}

std::string outcome_text(const ScheduledStep& step) {
  switch (step.outcome) {
    case ScheduleOutcome::timed:
      return format_seconds(step.seconds);
    case ScheduleOutcome::no_memory:
      return "no memory";
    case ScheduleOutcome::not_searched:
      return "?";
    case ScheduleOutcome::impossible:
      break;
  }
  return "-";
}

void add_finalist(std::string& text, const ParallelCandidate& candidate, double best) {
  text += fmt::format("{:<34}{:>13}{:>10}  ", shape_text(candidate), format_seconds(candidate.step_seconds),
                      more_text(candidate.value, best));
  for (const ScheduledStep& step : candidate.schedules) text += fmt::format("{:>15}", outcome_text(step));
  text += '\n';
}

void add_finalists(std::string& text, const ParallelCosts& costs, const ParallelAnswer& answer) {
  text += fmt::format("\n{:<34}{:>13}{:>10}  by simulation:\n{:<34}{:>13}{:>10}  ", "", "", "", "finalist",
                      "step", "");
  for (const ScheduledStep& step : answer.best().schedules) text += fmt::format("{:>15}", name_of(step));
  text += '\n';
  for (const ParallelCandidate& grid : answer.grids) add_finalist(text, grid, answer.best().value);
  if (answer.best_of_all) add_finalist(text, *answer.best_of_all, answer.best().value);
  if (const auto faster = fastest_by_simulation(costs, answer))
    text += fmt::format("The simulation finds {} faster under {}: {} a step.\n",
                        faster->candidate == &answer.best() ? "the answer" : shape_text(*faster->candidate),
                        name_of(*faster->step), format_seconds(faster->step->seconds));
}

void add_best(Lines& lines, const ParallelCosts& costs, const ParallelAnswer& answer) {
  if (!answer.grids.empty()) {
    lines.add("best grid", "{}: {}", shape_text(answer.grids.front()),
              value_text(costs, answer.grids.front()));
  } else if (!answer.grids_proven) {
    lines.add("best grid", "none was found before the search ended");
  } else if (answer.least_grid) {
    lines.add("best grid", "none fits; the least memory that would do is {} of each device",
              exact(answer.least_grid->bytes));
  } else {
    lines.add("best grid", "none: the layers have no variants for a grid of so many devices");
  }
  if (!answer.best_of_all) {
    lines.add("best of all", "nothing {} better than this grid", answer.proven ? "is" : "was found that is");
    return;
  }
  const ParallelCandidate& all = *answer.best_of_all;
  lines.add("best of all", "{}: {}{}", shape_text(all), value_text(costs, all),
            answer.grids.empty() ? "" : ", " + more_text(all.value, answer.best().value));
}

void add_search(Lines& lines, const ParallelAnswer& answer) {
  if (answer.proven && answer.grids_proven) {
    lines.add("search", "proven in {} combinations{}", grouped(answer.work),
              answer.stopped ? "; stopped behind that" : "");
    return;
  }
  lines.add("search", "{} {} combinations: {} is below {}, {:.1f}% less",
            answer.stopped ? "stopped after" : "not proven in", grouped(answer.work),
            answer.grids_proven && !answer.grids.empty() ? "no grid is better, and nothing else"
                                                         : "the best so far; nothing",
            format_seconds(answer.bound), 100 * (1 - 1 / (1 + answer.gap())));
}

void add_simpler(Lines& lines, const SimplerSearch& simpler, double best) {
  const char* early = simpler.ended ? ", ended early" : "";
  if (simpler.step_seconds) {
    lines.add("beside it", "{}: {} a step, {}{}", simpler.name, format_seconds(*simpler.step_seconds),
              more_text(*simpler.step_seconds, best), early);
  } else {
    lines.add("beside it", "{}: {}", simpler.name,
              simpler.ended ? "ended before it found a pipeline" : "finds no pipeline");
  }
}

}  // namespace

std::string refusal(const ParallelCosts& costs, const ParallelAnswer& answer) {
  if (!answer.proven) {
    return answer.stopped ? "stopped before a pipeline was found"
                          : "the search ended before it found a pipeline; give it a higher --limit";
  }
  if (!answer.least) {
    return fmt::format(
        "no pipeline {} {}: the layers have no variants for that; give variants of fewer "
        "devices, or other devices",
        costs.use_all_devices ? "uses all of" : "runs on",
        count_text(static_cast<std::size_t>(costs.devices), "device"));
  }
  const LeastMemory& least = *answer.least;
  const bool one = least.last - least.first == 1;
  return fmt::format(
      "no pipeline fits in {} of each device; the least that would do is {}, which layer{} {} "
      "need{} on {}",
      format_bytes(costs.memory), exact(least.bytes), one ? "" : "s",
      layers_text(costs, least.first, least.last), one ? "s" : "",
      count_text(static_cast<std::size_t>(least.layout.devices), "device"));
}

std::string describe(const ParallelCosts& costs, const ParallelAnswer& answer) {
  Lines lines;
  const std::string micro_batches =
      costs.micro_batches == 1 ? "1 micro-batch"
                               : grouped(static_cast<std::uint64_t>(costs.micro_batches)) + " micro-batches";
  lines.add("layers", "{} on {}{}, {}{}", costs.layers.size(), costs.use_all_devices ? "all of " : "",
            count_text(static_cast<std::size_t>(costs.devices), "device"), micro_batches,
            costs.memory == unlimited ? "" : ", " + exact(costs.memory) + " of each device");
  if (!answer.feasible()) {
    lines.add("answer", "{}", refusal(costs, answer));
    return std::move(lines).text();
  }
  add_best(lines, costs, answer);
  add_search(lines, answer);
  const ParallelCandidate& of_all = answer.best_of_all ? *answer.best_of_all : answer.best();
  for (const SimplerSearch& each : answer.simpler) add_simpler(lines, each, of_all.step_seconds);
  std::string text = std::move(lines).text();
  add_stages(text, costs, answer.best());
  add_finalists(text, costs, answer);
  return text;
}

}  // namespace stowage
