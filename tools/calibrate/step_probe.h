// StepProbe: training steps with everything on the device, so that nothing but the compute lane is busy, and
// what each op of them took. Of a model that needs more than it may have, steps of a plan for that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "src/machine/op_profile.h"
#include "stowage/device.h"
#include "stowage/engine.h"
#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

// An i32 input: whole numbers from `least` on, below `values`.
struct ProbeInput {
  TensorId tensor = no_id;
  std::int32_t least = 0;
  std::int32_t values = 1;
};

class StepProbe {
 public:
  struct Options {
    std::optional<LaunchTable> kernels;  // default: launch_table_for(device)
    Machine modelled;                    // op times of a device that runs in virtual time
    Budget budget;                       // for the step
  };
  struct Step {
    // Seconds of each on the compute lane, from the end of the one before it, since to be launched takes
    // time; from its own begin where it waits for another lane, or for the host's judgement of the step. Of
    // several micro-batches the mean; 0 of an op that is not on the compute lane.
    std::vector<double> ops;
    double busy = 0;   // of all ops together
    double whole = 0;  // seconds from the first op's begin to the last one's end
  };

  // The device must outlive it. Throws as Engine does, OutOfMemory where no plan fits the budget.
  StepProbe(Device& device, Graph graph, const std::vector<ProbeInput>& inputs, const Options& options);
  StepProbe(Device& device, Graph graph, const std::vector<ProbeInput>& inputs)
      : StepProbe(device, std::move(graph), inputs, Options()) {}

  const Graph& graph() const { return graph_; }
  // A step whose learning rate is 0.
  Step step();
  // Of each op in some steps: while `more`, at least so many. Medians, enlarged to make up the median of all
  // ops: what disturbs an op now and then hardly shows in its own median.
  Step steps(int least, const std::function<bool()>& more);

 private:
  Graph graph_;
  Plan plan_;
  Engine engine_;
  std::deque<std::vector<std::int32_t>> values_;
  std::vector<InputData> inputs_;
  std::vector<double> launches_;  // of each op in a step
};

// Bytes of device and host together that steps take with everything on the device.
Bytes bytes_of_step(const Graph& graph);

// What a step takes on the device by the rates of `machine`.
double seconds_by_rates(const Graph& graph, const Machine& machine);

// True until so many seconds are over.
std::function<bool()> for_seconds(double seconds);

// Measures three shares of `machine` with steps of `run`: the speed that compute keeps while one direction of
// such a link is busy, and the speeds that compute and host lane keep while both work. For a device that
// computes with the host's own cores. `alone` is the seconds of a step with nothing beside it, and
// `machine.host_bytes_per_second` must be set. Takes 16 bytes of host memory for each of the `elements`.
inline constexpr std::int64_t share_elements = std::int64_t{4} << 20U;
void measure_shares(StepProbe& run, double alone, const Link& link, Machine& machine,
                    std::int64_t elements = share_elements);

struct ProbedStep {
  Graph graph;
  std::vector<ProbeInput> inputs;
};

// Device memory that measuring may use so that a run stays within `budget`, with `overhead` bytes of it for
// context and libraries (overhead_on).
Bytes arena_within(const Device& device, Bytes budget, Bytes overhead);

// Adds what each op of the compute lane took.
void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile);

// Measures the step that `build` makes of `samples` samples. Where that does not fit `budget` or the memory
// that is free, or would take more than a tenth of a second by the rates of `machine`, half as many are
// tried, and so on; with one sample too much, the profile is empty. Takes about half a second. Throws as
// Engine does, but never OutOfMemory.
OpProfile profile_of_step(Device& device, const Machine& machine, const Budget& budget, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build);

}  // namespace stowage
