// Trains one model under the plans of all policies in turn, on the simulated device. Prints JSON: what each
// plan has and how long its steps took.
//
// Each plan has a device and an engine of its own, and all exist at once. A round gives each plan one turn,
// in an order that changes from round to round, so that the computer's other work hits all plans alike. A
// turn is a few steps in a row. It counts as the median of these steps without the first, which found the
// lanes empty.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "offload/plan/problem/settings.h"
#include "src/graph/cost.h"
#include "stowage/engine.h"
#include "stowage/machine_file.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tools/choices/machine_choice.h"
#include "tools/choices/model_spec.h"

namespace stowage {
namespace {

using Json = nlohmann::ordered_json;

struct Words {
  ModelWords model;
  std::string machine;
  double share = 0;
  int rounds = 9;
  double seconds = 0.2;
  std::vector<double> transfer_risks, replay_prices;
};

struct Task {
  Graph graph;
  Machine machine;
  Budget budget;
};

Task task_of(const Words& words, Bytes& need) {
  const MachineFile file = read_machine(words.machine, machines_folder());
  const auto spec = model_spec(words.model, DataType::f32);
  if (!spec) throw InvalidInput("give --gpt LAYERSxWIDTH or --bert LAYERSxWIDTH");
  Task task{build(*spec), machine_for(file, spec->type), {}};
  set_op_seconds(file, spec->type, task.machine, task.graph);
  need = need_bytes(task.graph, task.machine);
  if (words.share > 0) task.budget.device = static_cast<Bytes>(words.share * static_cast<double>(need));
  return task;
}

// Token ids for every input of the graph.
class Inputs {
 public:
  explicit Inputs(const Graph& graph) {
    constexpr std::int32_t least_vocabulary = 64;
    for (TensorId id = 0; id < graph.tensors.size(); ++id) {
      if (graph.kind_of(id) != TensorKind::input) continue;
      auto& values = values_.emplace_back(static_cast<std::size_t>(graph.tensor(id).elements()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<std::int32_t>(i * 7 % least_vocabulary);
      data_.push_back({id, values});
    }
  }
  const std::vector<InputData>& data() const { return data_; }

 private:
  std::vector<std::vector<std::int32_t>> values_;
  std::vector<InputData> data_;
};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// One plan, and its training.
class Contestant {
 public:
  Contestant(const Task& task, Plan plan, const Inputs& inputs)
      : inputs_(inputs),
        plan_(std::move(plan)),
        device_(open_simulated_device({.capacity = task.machine.arena_in(task.budget.device),
                                       .h2d = task.machine.h2d,
                                       .d2h = task.machine.d2h,
                                       .h2d_both_bytes_per_second = task.machine.h2d_both_bytes_per_second,
                                       .d2h_both_bytes_per_second = task.machine.d2h_both_bytes_per_second,
                                       .poison = Poison::sampled})),
        engine_(*device_, task.graph, plan_,
                {.measurement = Measurement::stalls,
                 .machine = task.machine,
                 .kernels = {},
                 .host_kernels = {}}) {}

  double step() { return engine_.step(inputs_.data(), {.learning_rate = 1e-4}).seconds; }
  // Runs one turn: at least three steps, in about `seconds` seconds.
  void turn(double seconds) {
    step();
    const double once = step();
    const auto more = static_cast<int>(std::clamp(seconds / once, 2.0, 200.0));
    const double before = processor_seconds();
    std::vector<double> taken{once};
    for (int i = 0; i < more; ++i) taken.push_back(step());
    engine_.drain();
    processor_.push_back((processor_seconds() - before) / more);
    std::nth_element(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2),
                     taken.end());
    turns_.push_back(taken[taken.size() / 2]);
  }
  void forget() { turns_.clear(), processor_.clear(); }

  const Plan& plan() const { return plan_; }
  const std::vector<double>& turns() const { return turns_; }
  const std::vector<double>& processor() const { return processor_; }
  std::vector<std::string> names;

 private:
  const Inputs& inputs_;
  Plan plan_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  std::vector<double> turns_;
  std::vector<double> processor_;  // processor seconds of one step, by turn
};

Json description(const Contestant& of, const Task& task) {
  std::size_t prefetches = 0, offloads = 0, host_steps = 0, replays = 0;
  double replay_seconds = 0;
  for (const Instruction& instruction : of.plan().instructions) {
    prefetches += instruction.kind == InstructionKind::prefetch;
    offloads += instruction.kind == InstructionKind::offload;
    host_steps += runs_on_host(instruction) && instruction.kind == InstructionKind::commit;
    if (instruction.kind != InstructionKind::recompute) continue;
    ++replays;
    replay_seconds += op_seconds(task.graph.op(instruction.op), task.machine);
  }
  return {{"policies", of.names},
          {"predicted_seconds", of.plan().predicted_step_seconds},
          {"lower_bound_seconds", of.plan().lower_bound_seconds},
          {"turns_seconds", of.turns()},
          {"processor_seconds", of.processor()},
          {"prefetches", prefetches},
          {"offloads", offloads},
          {"host_steps", host_steps},
          {"replays", replays},
          {"replay_seconds", replay_seconds},
          {"h2d_bytes", of.plan().h2d_bytes},
          {"d2h_bytes", of.plan().d2h_bytes},
          {"peak_bytes", of.plan().device_peak_bytes}};
}

// Returns the plan as text with fixed values in the fields that a device does not see.
std::string text_of(Plan plan) {
  plan.policy = "none";
  plan.predicted_step_seconds = plan.lower_bound_seconds = 1;
  plan.predicted_stall_seconds = 0;
  plan.bound_by = "compute";
  return to_json(plan);
}

class Contest {
 public:
  Contest(const Words& words, const Task& task) : task_(task), inputs_(task.graph) {
    for (const Policy policy : every_policy) enter(std::string(to_string(policy)), {.policy = policy});
    for (const double risk : words.transfer_risks) {
      PlanOptions options;
      own_settings(options).transfer_risk_on_cores = risk;
      enter(fmt::format("auto with transfer risk {}", risk), options);
    }
    for (const double price : words.replay_prices) {
      PlanOptions options;
      own_settings(options).replay_price = price;
      enter(fmt::format("auto with replay price {}", price), options);
    }
  }

  void play(int rounds, double seconds) {
    for (const auto& each : all_) each->turn(0), each->forget();  // this touches the pages
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < all_.size(); ++i)
        all_[(i + static_cast<std::size_t>(round)) % all_.size()]->turn(seconds);
  }

  Json plans() const {
    Json plans = Json::array();
    for (const auto& each : all_) plans.push_back(description(*each, task_));
    return plans;
  }

 private:
  // Plans that are equal run once, under all their names.
  void enter(std::string name, const PlanOptions& options) {
    auto planned = make_plan(task_.graph, task_.machine, task_.budget, options);
    auto* plan = std::get_if<Plan>(&planned);
    if (plan == nullptr) return;
    const std::string text = text_of(*plan);
    auto same = std::find(texts_.begin(), texts_.end(), text);
    if (same == texts_.end()) {
      all_.push_back(std::make_unique<Contestant>(task_, std::move(*plan), inputs_));
      same = texts_.insert(texts_.end(), text);
    }
    all_[static_cast<std::size_t>(same - texts_.begin())]->names.push_back(std::move(name));
  }

  const Task& task_;
  Inputs inputs_;
  std::vector<std::unique_ptr<Contestant>> all_;
  std::vector<std::string> texts_;  // of each contestant's plan
};

Json run(const Words& words) {
  Bytes need = 0;
  const Task task = task_of(words, need);
  Contest contest(words, task);
  contest.play(words.rounds, words.seconds);
  return {{"need_bytes", need},
          {"budget_bytes", task.budget.device == unlimited ? Json("unlimited") : Json(task.budget.device)},
          {"latency_seconds", task.machine.h2d.latency_seconds},
          {"plans", contest.plans()}};
}

}  // namespace
}  // namespace stowage

int main(int count, char** arguments) {
  CLI::App app{
      "Trains one model under the plans of all policies in turn, on the simulated device; prints JSON"};
  stowage::Words words;
  app.add_option("--gpt", words.model.gpt, "LAYERSxWIDTH");
  app.add_option("--bert", words.model.bert, "LAYERSxWIDTH");
  app.add_option("--heads", words.model.heads);
  app.add_option("--vocabulary", words.model.vocabulary);
  app.add_option("--sequence", words.model.sequence, "tokens per sample");
  app.add_option("--batch", words.model.batch, "samples per step");
  app.add_option("--micro-batches", words.model.micro_batches);
  app.add_option("--machine", words.machine, "a name or a machine file")->required();
  app.add_option("--share", words.share, "of the need, as the budget; 0: no budget");
  app.add_option("--rounds", words.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--seconds", words.seconds, "of one plan's turn");
  app.add_option("--transfer-risk", words.transfer_risks, "automatic plans with these settings, too");
  app.add_option("--replay-price", words.replay_prices, "automatic plans with these settings, too");
  CLI11_PARSE(app, count, arguments);
  try {
    std::cout << stowage::run(words).dump(1) << '\n';
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "ranking_steps: " << error.what() << '\n';
    return 1;
  }
}
