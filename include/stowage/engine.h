// Engine: replays a plan on a device. Allocates at construction, nothing after the first step.
//
// Not thread-safe: one caller. The commit rule: no weight changes before every gradient of the step
// has landed and its norm is known; from then on the update completes and the step counts. A call
// that throws leaves the state at a step boundary (`completed_steps`), and the engine can go on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/device.h"
#include "stowage/error.h"
#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/plan.h"

namespace stowage {

// An engine failure: the device's own error with the op, the bytes and the lane. `what()` has all.
class StepError : public DeviceError {
 public:
  StepError(const std::string& message, std::string call, std::string op, Bytes bytes, LaneRole lane,
            bool step_counted)
      : DeviceError(message, std::move(call)),
        op_(std::move(op)),
        bytes_(bytes),
        lane_(lane),
        step_counted_(step_counted) {}
  const std::string& op() const { return op_; }  // op, or bucket for a transfer
  Bytes bytes() const { return bytes_; }
  LaneRole lane() const { return lane_; }
  bool step_counted() const { return step_counted_; }

 private:
  std::string op_;
  Bytes bytes_;
  LaneRole lane_;
  bool step_counted_;
};

struct EngineOptions {
  std::uint64_t seed = 1;
  bool validate = true;                     // judge the plan first; throws InvalidInput when it is invalid
  bool measure = true;                      // an event pair around every instruction: timelines and stall
  Machine machine;                          // modelled op times, for a device that runs in virtual time
  std::optional<LaunchTable> kernels;       // of the compute lane; default: launch_table_for(device)
  std::optional<LaunchTable> host_kernels;  // of the host lane; default: `kernels` if given, else the CPU's
};

struct StepOptions {
  double learning_rate = 1e-3;
};

struct StepReport {
  std::uint64_t step = 0;  // 0-based index of the step that was made
  double loss = 0;
  double grad_norm = 0;
  double seconds = 0;  // from the end of the step before to the end of this one
  double stall_fraction =
      0;                // share of `seconds` in which the compute lane had nothing to run (0 if not measured)
  Bytes h2d_bytes = 0;  // measured in this step
  Bytes d2h_bytes = 0;
  Bytes device_peak_bytes = 0;  // highest device byte touched so far
};

// One input tensor of the step.
struct InputData {
  TensorId tensor = no_id;
  std::span<const std::int32_t> values;
};

class Engine {
 public:
  // Graph and plan are copied; the device must outlive the engine. Parameters start from their
  // initializers, optimizer state at zero. Throws InvalidInput for a plan that the validator rejects
  // or an op without a kernel, OutOfMemory when the device cannot hold the plan's arena.
  Engine(Device& device, const Graph& graph, const Plan& plan, const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs one step; returns when its loss and norm are known. Updates may still run and overlap the
  // next step. Throws StepError.
  StepReport step(std::span<const InputData> inputs, const StepOptions& options);

  // Waits until nothing is in flight.
  void drain();
  std::uint64_t completed_steps() const;

  // Copies of a parameter's or optimizer state's current value (drains first). Throw InvalidInput for
  // any other tensor, DeviceError when the device fails: `read` can then be repeated, and after a
  // failed `write` the tensor's value is unknown until it is written again.
  std::vector<std::byte> read(TensorId tensor);
  void write(TensorId tensor, std::span<const std::byte> value);

  // Measured intervals of the last step whose commit phase has finished, by instruction, seconds
  // from that step's start; empty if not measured. Drains first.
  std::vector<Interval> last_timeline();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
