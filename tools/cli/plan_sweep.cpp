#include "tools/cli/plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "stowage/coded_activations.h"
#include "stowage/error.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr std::int64_t most_budgets = 1000;
constexpr std::int64_t largest_batch = 1 << 20;

[[noreturn]] void refuse(const std::string& text) {
  throw InvalidInput(fmt::format(
      "--sweep: \"{}\" is no sweep; give memory, memory=N (budgets), batch, devices, or a list of "
      "these such as batch=1,2,4",
      text));
}

std::vector<std::int64_t> parse_list(const char* option, const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    numbers.push_back(parse_count(option, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return numbers;
}

PlanAnswer answer_for_batch(PlanQuestion& question, std::int64_t batch) {
  question.model->config.batch = batch;
  question.take(build(*question.model));
  return answer(question);
}

void add_row(Lines& lines, const SweepRow& row) {
  const PlanAnswer& a = row.answer;
  const std::string first = row.batch > 0        ? std::to_string(row.batch)
                            : row.devices > 0    ? std::to_string(row.devices)
                            : !row.codes.empty() ? row.codes
                                                 : format_bytes(a.budget.device);
  if (!a.feasible) {
    lines.add(first, "does not fit: {}", refusal(a));
    return;
  }
  lines.add(first, "{:>11} {:>11} {:>11} {:>11} {}{:>11} {:>11} {:>7.1f}% {:>11} {:>12}",
            format_bytes(a.peak), format_bytes(a.host), format_bytes(a.h2d), format_bytes(a.d2h),
            row.devices > 0 ? fmt::format("{:>11} ", format_bytes(a.peers)) : "",
            format_seconds(a.step_seconds), format_seconds(a.lower_bound_seconds), 100 * a.gap(), a.bound_by,
            a.tokens == 0 ? "" : grouped(static_cast<std::uint64_t>(a.tokens_per_second())));
}

// Adds the host budget if the machine's file sets it; more devices may have a larger one.
void add_host_budget(Lines& lines, const std::vector<SweepRow>& rows) {
  if (rows.empty() || !rows.front().answer.host_from_machine) return;
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.answer.budget.host < b.answer.budget.host;
  });
  const std::string from = format_bytes(least->answer.budget.host),
                    to = format_bytes(most->answer.budget.host);
  lines.gap();
  lines.add("host budget", "{}{}{}", from, from == to ? "" : " to " + to,
            host_budget_source(rows.front().answer));
}

// 1, 2, 4, … up to `most`.
std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> powers;
  for (std::int64_t power = 1; power <= most; power *= 2) powers.push_back(power);
  return powers;
}

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

Sweep parse_sweep(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string over = text.substr(0, equals);
  const bool more = equals != std::string::npos;
  const std::string rest = more ? text.substr(equals + 1) : "";
  Sweep sweep;
  if (over == "memory") {
    if (more) sweep.budgets = static_cast<std::size_t>(parse_count("--sweep memory", rest, most_budgets));
    if (sweep.budgets < 2) refuse(text);
  } else if (over == "batch") {
    sweep.over = Sweep::Over::batch;
    if (more) sweep.batches = parse_list("--sweep batch", rest);
  } else if (over == "devices") {
    sweep.over = Sweep::Over::devices;
    if (more) sweep.devices = parse_list("--sweep devices", rest);
  } else {
    refuse(text);
  }
  return sweep;
}

std::vector<SweepRow> sweep_batch(PlanQuestion question, const std::vector<std::int64_t>& batches,
                                  const Progress& progress) {
  if (!question.model)
    throw InvalidInput(
        "--sweep batch: a saved graph has one batch size; name a model with --model, --gpt or --bert");
  std::vector<SweepRow> rows;
  if (!batches.empty()) {
    for (const std::int64_t batch : batches) {
      progress(fmt::format("batch {}, {} of {}", batch, rows.size() + 1, batches.size()));
      rows.push_back({batch, 0, {}, answer_for_batch(question, batch)});
    }
    return rows;
  }
  if (question.budget.device == unlimited)
    throw InvalidInput(
        "--sweep batch: every batch fits an unlimited device; give --device-memory, a machine "
        "with --machine, or the batches, such as --sweep batch=1,2,4");
  for (std::int64_t batch = question.model->config.micro_batches; batch <= largest_batch; batch *= 2) {
    progress(fmt::format("batch {}", batch));
    rows.push_back({batch, 0, {}, answer_for_batch(question, batch)});
    if (!rows.back().answer.feasible) break;
  }
  return rows;
}

std::vector<SweepRow> sweep_devices(PlanQuestion question, const ModelWords& words,
                                    std::vector<std::int64_t> devices, const Progress& progress) {
  if (!question.model)
    throw InvalidInput(
        "--sweep devices: a saved graph is one device's; name a model with --model, --gpt or --bert");
  if (question.measured == nullptr)
    throw InvalidInput("--sweep devices: give --machine, one with several devices, such as 4x-rtx4090");
  const MachineFile& file = *question.measured;
  if (devices.empty()) devices = powers_of_two(file.peers ? file.peers->devices : 1);
  question.graph = {};
  std::vector<PlanQuestion> asked;
  for (const std::int64_t number : devices) {
    ModelWords more = words;
    more.devices = std::to_string(number);
    question.model = model_spec(more, question.model->type);
    const auto count = static_cast<int>(question.devices());
    question.rates = machine_for(file, question.model->type, count);
    if (question.host_from_machine) question.budget.host = host_budget_for(file, count);
    asked.push_back(question);
  }
  std::vector<SweepRow> rows;
  for (PlanQuestion& each : asked) {
    progress(fmt::format("{} devices, {} of {}", each.devices(), rows.size() + 1, asked.size()));
    each.take(build(*each.model));
    rows.push_back({0, each.devices(), {}, answer(each)});
  }
  return rows;
}

std::vector<SweepRow> sweep_codes(PlanQuestion question, const Progress& progress) {
  if (!question.model)
    throw InvalidInput(
        "--code-activations auto: a saved graph has its own; leave it out, or name a model with --model, "
        "--gpt or --bert");
  std::vector<SweepRow> rows;
  for (const char* word : {"off", "8", "4"}) {
    progress(fmt::format("activations' codes {}, {} of 3", word, rows.size() + 1));
    question.model->config.code_activations = bits_of_coding(word);
    question.take(build(*question.model));
    rows.push_back({0, 0, word, answer(question)});
  }
  return rows;
}

std::string describe(const std::vector<SweepRow>& rows) {
  Lines lines;
  const bool batches = !rows.empty() && rows.front().batch > 0;
  const bool devices = !rows.empty() && rows.front().devices > 0;
  const bool codes = !rows.empty() && !rows.front().codes.empty();
  lines.add(batches   ? "batch"
            : devices ? "devices"
            : codes   ? "codes"
                      : "budget",
            "{:>11} {:>11} {:>11} {:>11} {}{:>11} {:>11} {:>8} {:>11} {:>12}", "peak", "host", "in", "out",
            devices ? fmt::format("{:>11} ", "from others") : "", "step", "bound", "gap", "bound by",
            "tokens/s");
  for (const SweepRow& row : rows) add_row(lines, row);
  add_host_budget(lines, rows);
  return std::move(lines).text();
}

nlohmann::ordered_json to_json(const std::vector<SweepRow>& rows) {
  auto array = nlohmann::ordered_json::array();
  for (const SweepRow& row : rows) {
    nlohmann::ordered_json object;
    if (row.batch > 0) object["batch"] = row.batch;
    if (!row.codes.empty()) object["code_activations"] = row.codes;
    object.update(to_json(row.answer));
    array.push_back(std::move(object));
  }
  return array;
}

bool fits(const PlanQuestion& question) {
  const Budget budget = question.budget_of_each();
  Planner planner(question.graph, question.rates, question.options);
  if (budget.device != unlimited && planner.minimum_bytes() > budget.device) return false;
  if (budget.host == unlimited) return true;
  // The state must fit even if nothing else takes a byte of either memory.
  const Bytes state = state_bytes(question.graph);
  if (budget.device != unlimited && state > budget.device && state - budget.device > budget.host)
    return false;
  return planner.fits(budget);
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
