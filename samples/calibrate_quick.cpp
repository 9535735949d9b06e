#include "samples/calibrate_quick.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "src/calibrate/host_probe.h"
#include "src/calibrate/host_update.h"
#include "src/calibrate/link_direction.h"
#include "stowage/engine.h"
#include "stowage/graph_builder.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"

namespace stowage::samples {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double time_limit = 0.5;  // seconds of steps alone; a started one is finished
constexpr int least_rounds = 4;     // … however long they take
constexpr int rounds_beside = 3;    // steps beside copies, and beside updates
constexpr std::int64_t host_elements = std::int64_t{4} << 20U;
constexpr double flops_per_round = 3e10;

// As much of the model as runs in some hundred milliseconds: the whole batch before more layers. What stays
// in caches and what does not is then like the model's.
GptConfig probe(const GptConfig& model) {
  constexpr std::int64_t widest = 1024;
  constexpr double most_parameters = 16e6;
  const std::int64_t per_head = std::min(model.width / model.heads, widest);
  GptConfig result = model;
  result.heads = std::clamp(model.heads, std::int64_t{1}, widest / per_head);
  result.width = per_head * result.heads;
  result.sequence = std::min(model.sequence, std::int64_t{512});
  const double parameters = 12.0 * static_cast<double>(result.width) * static_cast<double>(result.width);
  const double sample_flops = 6 * parameters * static_cast<double>(result.sequence);
  const auto within = [](double most, std::int64_t limit) {
    return std::clamp(static_cast<std::int64_t>(std::min(most, 1e6)), std::int64_t{1}, limit);
  };
  result.batch = within(flops_per_round / sample_flops, model.batch / model.micro_batches);
  const double layer_flops = sample_flops * static_cast<double>(result.batch);
  result.layers = within(std::min(flops_per_round / layer_flops, most_parameters / parameters), model.layers);
  result.micro_batches = std::min<std::int64_t>(model.micro_batches, 2);  // the second one adds to gradients
  result.batch *= result.micro_batches;
  return result;
}

// Runs steps of the probe, everything on the device, so that nothing but the compute lane is busy.
class ProbeRun {
 public:
  ProbeRun(const BuildModel& build, const GptConfig& model, const AdamW& optimizer)
      : model_(build(builder_, model)),
        graph_(builder_.finish(model_.loss, optimizer)),
        plan_(std::get<Plan>(make_plan(graph_, Machine{}, {}, {.policy = Policy::none}))),
        device_(open_simulated_device({.capacity = unlimited, .poison = Poison::sampled})),
        engine_(*device_, graph_, plan_,
                {.measurement = Measurement::timeline, .machine = {}, .kernels = {}, .host_kernels = {}}),
        launches_(graph_.ops.size()) {
    for (const ModelInput& input : model_.inputs) {
      auto& values = values_.emplace_back(static_cast<std::size_t>(graph_.tensor(input.value.id).elements()));
      const auto count = static_cast<std::size_t>(std::min(input.values, 256) - input.least);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = input.least + static_cast<std::int32_t>(i % count);
      inputs_.push_back({input.value.id, values});
    }
    for (const Instruction& instruction : plan_.instructions) {
      if (instruction.lane == LaneRole::compute) launches_[instruction.op] += 1;
    }
  }

  const Graph& graph() const { return graph_; }

  struct Step {
    std::vector<double> ops;  // seconds of each on the compute lane, from the end of the one before it: to be
                              // launched takes time; of several micro-batches the mean
    double whole = 0;         // seconds from the first op's begin to the last one's end
  };
  Step step() {
    engine_.step(inputs_, {.learning_rate = 0});
    const std::vector<Interval> times = engine_.last_timeline();
    Step result;
    result.ops.resize(graph_.ops.size());
    std::optional<double> before;
    for (InstructionId id = 0; id < times.size(); ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (instruction.lane != LaneRole::compute) continue;
      const double took = times[id].end - before.value_or(times[id].begin);
      result.ops[instruction.op] += took / launches_[instruction.op];
      result.whole += took;
      before = times[id].end;
    }
    return result;
  }

  // Of each op in some steps: while `more`, at least so many. Medians, enlarged to make up the median step:
  // what disturbs an op now and then hardly shows in its own median.
  Step steps(int least, const std::function<bool()>& more) {
    std::vector<std::vector<double>> by_op(graph_.ops.size());
    std::vector<double> whole;
    for (int made = 0; made < least || more(); ++made) {
      const Step one = step();
      for (std::size_t i = 0; i < one.ops.size(); ++i) by_op[i].push_back(one.ops[i]);
      whole.push_back(one.whole);
    }
    Step result;
    result.whole = median(std::move(whole));
    double made_up = 0;
    for (OpId id = 0; id < by_op.size(); ++id) {
      result.ops.push_back(median(std::move(by_op[id])));
      made_up += result.ops.back() * launches_[id];
    }
    for (double& seconds : result.ops) seconds *= result.whole / made_up;
    return result;
  }

 private:
  GraphBuilder builder_;
  BuiltModel model_;
  Graph graph_;
  Plan plan_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  std::deque<std::vector<std::int32_t>> values_;
  std::vector<InputData> inputs_;
  std::vector<double> launches_;  // of each op in a step
};

// True until so many seconds are over.
std::function<bool()> for_seconds(double seconds) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return [end] { return Clock::now() < end; };
}

// Share of its speed that something keeps, of which so much is left: a positive part of the whole.
double share_kept(double alone, double beside) {
  constexpr double least = 0.05;
  return beside > 0 ? std::clamp(alone / beside, least, 1.0) : 1;
}

// What the compute lane keeps while one direction of such a link is busy.
double beside_copy(ProbeRun& run, const Link& link, double alone) {
  constexpr double copy_seconds = 2e-3;
  constexpr double most_bytes = 16e6;
  const double rate = link.throttled ? link.bytes_per_second : most_bytes / copy_seconds;
  const auto bytes = static_cast<Bytes>(std::min(most_bytes, rate * copy_seconds));
  if (bytes < 4096 || link.latency_seconds > copy_seconds) return 1;  // it hardly copies
  const auto device = open_simulated_device(
      {.capacity = unlimited, .h2d = link, .d2h = link, .poison = Poison::none, .check_accesses = false});
  LinkDirection copies(*device, LaneRole::h2d, bytes);
  const int longer = static_cast<int>(1.5 * alone / link.seconds(bytes)) + 1;  // than a step takes
  std::vector<double> times;
  for (int i = 0; i < rounds_beside; ++i) {
    copies.begin(bytes, longer);
    times.push_back(run.step().whole);
    copies.read();
  }
  return share_kept(alone, median(std::move(times)));
}

// What compute and host lane keep of their speed while both are busy.
void measure_beside_host(ProbeRun& run, double alone, Machine& machine) {
  HostUpdate update(host_elements);
  update.seconds();
  std::atomic<bool> over = false;
  std::vector<double> updates;
  std::thread host([&] {
    while (!over) updates.push_back(update.seconds());
  });
  std::vector<double> times;
  for (int i = 0; i < rounds_beside; ++i) times.push_back(run.step().whole);
  over = true;
  host.join();
  machine.compute_beside_host = share_kept(alone, median(std::move(times)));
  machine.host_beside_compute =
      share_kept(update.bytes() / machine.host_bytes_per_second, median(std::move(updates)));
}

struct Share {
  double work = 0;
  double seconds = 0;
  double rate(double otherwise) const { return work > 0 && seconds > 0 ? work / seconds : otherwise; }
};

}  // namespace

void fit_rates(std::span<const OpTime> times, Machine& machine) {
  constexpr int rounds = 4;
  for (int round = 0; round < rounds; ++round) {
    Share arithmetic;
    Share memory;
    for (const OpTime& time : times) {
      const bool computes =
          time.cost.flops / machine.flops_per_second > time.cost.bytes / machine.device_bytes_per_second;
      Share& share = computes ? arithmetic : memory;
      share.work += computes ? time.cost.flops : time.cost.bytes;
      share.seconds += std::max(0.0, time.seconds - machine.launch_seconds);
    }
    machine.flops_per_second = arithmetic.rate(machine.flops_per_second);
    machine.device_bytes_per_second = memory.rate(machine.device_bytes_per_second);
  }
}

Calibration calibrate_quick(const BuildModel& build, const GptConfig& model, const AdamW& optimizer,
                            const Link& link) {
  ProbeRun run(build, probe(model), optimizer);
  run.step();  // libraries compile their kernels, pages are touched
  const ProbeRun::Step alone = run.steps(least_rounds, for_seconds(time_limit));
  Calibration result;
  Machine& machine = result.machine;
  machine.h2d = machine.d2h = link;
  std::vector<OpTime> times;
  const Graph& graph = run.graph();
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    result.profile.add(graph.op(id), alone.ops[id]);
    if (graph.op(id).phase != Phase::update) times.push_back({graph.op(id).cost, alone.ops[id]});
  }
  fit_rates(times, machine);
  machine.host_bytes_per_second =
      measure_host({.elements = host_elements, .repetitions = 5}).back().bytes_per_second;
  machine.compute_beside_copy = beside_copy(run, link, alone.whole);
  measure_beside_host(run, alone.whole, machine);
  return result;
}

}  // namespace stowage::samples
