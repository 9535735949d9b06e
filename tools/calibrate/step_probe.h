// StepProbe: training steps with everything on the device, so that nothing but the compute lane is busy, and
// the seconds of each op. If a model needs more memory than it may have, the steps are those of a plan for
// that memory.
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
#include "stowage/models.h"
#include "stowage/plan.h"

namespace stowage {

class StepProbe {
 public:
  struct Options {
    std::optional<LaunchTable> kernels;  // default: launch_table_for(device)
    Machine modelled;                    // op times of a device that runs in virtual time
    Budget budget;                       // budget of the step
  };
  struct Step {
    // Seconds of each op on the compute lane: from the end of the op before it, since a launch takes time;
    // from its own begin if it waits for another lane, or for the host's judgement of the step. The mean over
    // micro-batches; 0 for an op that is not on the compute lane.
    std::vector<double> ops;
    double busy = 0;   // seconds of all ops together
    double whole = 0;  // seconds from the first op's begin to the last one's end
  };

  // The device must outlive it. Throws as Engine does, and OutOfMemory if no plan fits the budget.
  StepProbe(Device& device, Graph graph, const std::vector<ModelInput>& inputs, const Options& options);
  StepProbe(Device& device, Graph graph, const std::vector<ModelInput>& inputs)
      : StepProbe(device, std::move(graph), inputs, Options()) {}

  const Graph& graph() const { return graph_; }
  // A step whose learning rate is 0.
  Step step();
  // Makes at least `least` steps, and more as long as `more` returns true. Returns each op's median, enlarged
  // so that they add up to the median of all ops: a disturbance now and then hardly shows in
  // an op's own median.
  Step steps(int least, const std::function<bool()>& more);

 private:
  Graph graph_;
  Plan plan_;
  Engine engine_;
  std::deque<std::vector<std::int32_t>> values_;
  std::vector<InputData> inputs_;
  std::vector<double> launches_;  // number of launches of each op in a step
};

// Returns the bytes of device and host together that steps take with everything on the device.
Bytes bytes_of_step(const Graph& graph);

// Returns the seconds of a step on the device by the rates of `machine`.
double seconds_by_rates(const Graph& graph, const Machine& machine);

// Returns a function that returns true until `seconds` seconds have passed.
std::function<bool()> for_seconds(double seconds);

// Measures three shares of `machine` with steps of `run`: the speed that compute keeps while one direction of
// a link like `link` is busy, and the speeds that compute and host lane keep while both work. These shares
// matter for a device that computes with the host's own cores. `alone` is the seconds of a step with nothing
// beside it, and `machine.host_bytes_per_second` must be set. Takes 16 bytes of host memory for
// each of the `elements`.
inline constexpr std::int64_t share_elements = std::int64_t{4} << 20U;
void measure_shares(StepProbe& run, double alone, const Link& link, Machine& machine,
                    std::int64_t elements = share_elements);

// A model's training step, to be measured.
struct ProbedStep {
  Graph graph;
  std::vector<ModelInput> inputs;
};

// Returns the device memory that measuring may use so that a run stays within `budget`, with `overhead` bytes
// of it for context and libraries (overhead_on).
Bytes arena_within(const Device& device, Bytes budget, Bytes overhead);

// Adds the seconds of each op of the compute lane.
void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile);

// Measures the ops of the very model that a run will train, by the step that `build` makes of `samples`
// samples. If that does not fit `budget` or the free memory, or would take more than a tenth of a second by
// the rates of `machine`, half as many samples are tried, and so on; if even one is too many, the profile is
// empty. Takes about half a second. Throws as Engine does, but never OutOfMemory.
OpProfile profile_of_step(Device& device, const Machine& machine, const Budget& budget, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build);

}  // namespace stowage
