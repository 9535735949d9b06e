#include "tools/cli/micro_batch_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/recompute/execution_order.h"
#include "stowage/error.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

// Largest number of micro-batches of a device that is tried. Each number and order takes a search of its own.
constexpr std::int64_t most_on_a_device = 8;

// Returns the orders to plan. The emulated systems know one.
std::vector<MicroBatchOrder> orders_of(const PlanQuestion& question) {
  if (is_emulated(question.options.policy)) return {MicroBatchOrder::layer_major};
  return possible_orders(question.graph);
}

bool is_better(const PlanAnswer& a, const PlanAnswer& b) {
  if (a.feasible != b.feasible) return a.feasible;
  if (a.feasible) return a.step_seconds < b.step_seconds;
  if (a.lacks_host != b.lacks_host) return a.lacks_host;  // the device has enough for it
  return a.smallest < b.smallest;
}

void add_row(Lines& lines, const MicroBatchRow& row, bool best) {
  const PlanAnswer& a = row.answer;
  const std::string number = fmt::format("{}{}", row.micro_batches, best && a.feasible ? " (fastest)" : "");
  if (!a.feasible) {
    lines.add(number, "{:<12} does not fit: {}", to_string(row.order), refusal(a));
    return;
  }
  lines.add(number, "{:<12} {:>11} {:>12} {:>11} {:>11} {:>11} {:>11}", to_string(row.order),
            format_seconds(a.step_seconds), grouped(static_cast<std::uint64_t>(a.tokens_per_second())),
            format_bytes(a.need), format_bytes(a.peak), format_bytes(a.minimum), a.bound_by);
}

bool has_several_orders(const MicroBatchChoice& choice) {
  return std::count_if(choice.rows.begin(), choice.rows.end(), [&](const MicroBatchRow& row) {
           return row.micro_batches == choice.rows[choice.best].micro_batches;
         }) > 1;
}

void add_how_to_run(Lines& lines, const MicroBatchChoice& choice) {
  const MicroBatchRow& row = choice.rows[choice.best];
  const PlanAnswer& a = row.answer;
  if (!a.feasible) {
    lines.add("none fits", "the least budget is {}{} of {} memory, with --micro-batches {}",
              a.smallest_is_at_most ? "at most " : "", exact(a.smallest), a.lacks_host ? "host" : "device",
              row.micro_batches);
    return;
  }
  lines.add("run with",
            "--micro-batches {}: a run must name it, since it fixes the order in which gradients are summed, "
            "and so the bits",
            row.micro_batches);
  if (has_several_orders(choice))
    lines.add("  order", "{}: trainers choose the order themselves, and no bit depends on it",
              to_string(row.order));
}

}  // namespace

bool asks_for_micro_batches(const ModelWords& words) { return words.micro_batches == "auto"; }

std::vector<ModelSpec> micro_batch_models(ModelWords words, DataType type) {
  words.micro_batches.clear();
  const std::optional<ModelSpec> usual =
      words.gradient_groups.empty()
          ? model_spec(words, type)
          : with_prefix(fmt::format("--micro-batches auto, at least the --gradient-groups {}: ",
                                    words.gradient_groups),
                        [&] { return model_spec(words, type); });
  if (!usual)
    throw InvalidInput(
        "--micro-batches auto: a saved graph has its own number; leave it out, or name a model with --model, "
        "--gpt or --bert");
  const ModelConfig& config = usual->config;
  std::vector<ModelSpec> models;
  for (std::int64_t each = 1; each <= most_on_a_device; ++each) {
    const std::int64_t all = each * config.ranks;
    if (config.batch % all != 0 || all % config.gradient_groups != 0) continue;
    words.micro_batches = std::to_string(all);
    models.push_back(model_spec(words, type).value());
  }
  if (models.empty())
    throw InvalidInput(
        fmt::format("--micro-batches auto: --gradient-groups {} divides no number of up to {} micro-batches "
                    "on each device; give --micro-batches a multiple of {}, or fewer groups",
                    config.gradient_groups, most_on_a_device, config.gradient_groups));
  return models;
}

MicroBatchChoice choose_micro_batches(PlanQuestion question, const std::vector<ModelSpec>& models,
                                      const Progress& progress) {
  MicroBatchChoice choice;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::int64_t number = models[i].config.micro_batches;
    question.model = models[i];
    question.take(build(models[i]));
    for (const MicroBatchOrder order : orders_of(question)) {
      progress(fmt::format("micro-batches {}, {} of {}, {}", number, i + 1, models.size(), to_string(order)));
      question.options.order = order;
      Plan plan;
      choice.rows.push_back({number, order, answer(question, &plan)});
      if (choice.rows.size() > 1 && !is_better(choice.rows.back().answer, choice.answer())) continue;
      choice.best = choice.rows.size() - 1;
      choice.question = question;
      choice.plan = std::move(plan);
    }
  }
  return choice;
}

std::string describe(const MicroBatchChoice& choice) {
  Lines lines;
  lines.add("micro-batches", "{:<12} {:>11} {:>12} {:>11} {:>11} {:>11} {:>11}", "order", "step", "tokens/s",
            "need", "peak", "minimum", "bound by");
  for (std::size_t i = 0; i < choice.rows.size(); ++i) add_row(lines, choice.rows[i], i == choice.best);
  lines.gap();
  add_how_to_run(lines, choice);
  return std::move(lines).text();
}

nlohmann::ordered_json to_json(const MicroBatchChoice& choice) {
  auto array = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < choice.rows.size(); ++i) {
    const MicroBatchRow& row = choice.rows[i];
    nlohmann::ordered_json object = {{"micro_batches", row.micro_batches}, {"order", to_string(row.order)}};
    object["best"] = row.answer.feasible && i == choice.best;
    const nlohmann::ordered_json answer = to_json(row.answer);
    for (const char* name : {"feasible", "step_seconds", "tokens_per_second", "need_bytes", "peak_bytes",
                             "minimum_device_bytes", "bound_by", "lacks", "smallest_bytes"})
      object[name] = answer[name];
    array.push_back(std::move(object));
  }
  return array;
}

}  // namespace stowage
