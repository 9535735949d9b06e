// Engine: runs a plan on a device. Allocates at construction, nothing after the first step.
//
// Not thread-safe: one caller. The commit rule: no weight that anything reads changes before every gradient
// of the step has landed, its norm is known, and norm and loss are finite; from then on the update completes
// and the step counts. An update that begins before that (InstructionKind::speculate) is undone bit-exactly
// if the step does not count. A call that throws leaves the state at a step boundary (`completed_steps`), and
// the engine can go on.
//
// The commit rule does not hold with Plan::optimizer_in_backward, whose updates before the gate are made for
// good. Once the first such update has begun, a step that throws has been made in part: the error says so,
// and from then on every call that needs weights or state throws DeviceError.
//
// All host memory is taken through the device, page-locked or not. On a card it is at the NUMA node that the
// card is next to, as far as that has room (docs/devices.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/device.h"
#include "stowage/error.h"
#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/loss_scale.h"
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

// Verify mode: the replay of an op has written other bits than the op's first launch in the same step. The
// kernel is not replayable on this device, or its inputs have changed. The step was not made, and the state
// is that of a step boundary, as for any StepError before the gate. `op()` is the op's name.
class RecomputeMismatch : public StepError {
 public:
  RecomputeMismatch(const StepError& error, std::string kernel, std::string tensor, std::uint64_t step)
      : StepError(error), kernel_(std::move(kernel)), tensor_(std::move(tensor)), step_(step) {}
  const std::string& kernel() const { return kernel_; }
  const std::string& tensor() const { return tensor_; }  // the first of the op's results that differs
  std::uint64_t step() const { return step_; }           // number of the step, from 0

 private:
  std::string kernel_;
  std::string tensor_;
  std::uint64_t step_;
};

// The loss or the gradient norm of a step is NaN or infinite. The update was skipped: weights and optimizer
// state are those of a step boundary. The engine has run the step once more, up to its gate, which gives the
// same bits, and looked at every result: `op()` is the first op, in the plan's order, with a result that is
// not finite. Steps that are finite pay nothing for this.
class NonFinite : public StepError {
 public:
  enum class Origin : std::uint8_t {
    op,       // `op()` made it: all values that it read were finite
    given,    // `tensor()` is a parameter, optimizer state or an input, and was not finite before the step
    norm,     // gradients are finite, the sum of their squares is not
    unknown,  // the second run was finite; `op()` is the gate's op, `tensor()` is empty
    // The op was not searched for: updates of the step had been made for good (Plan::optimizer_in_backward),
    // and weights and state are lost. `op()` is that of the gate, as for `unknown`.
    not_searched,
  };
  struct Finding {
    Origin origin = Origin::unknown;
    std::uint64_t step = 0;  // number of the step, from 0
    double loss = 0;
    double grad_norm = 0;
    std::string kernel;  // kernel of `op()`
    std::string tensor;  // the op's result; for `given` the tensor that it read
    std::string text;    // the finding for people, without the step's number and what to do
  };
  NonFinite(const StepError& error, Finding finding) : StepError(error), finding_(std::move(finding)) {}
  const Finding& finding() const { return finding_; }

 private:
  Finding finding_;
};

// Selects which times a step's events measure beside its seconds. Every event costs a card some time.
enum class Measurement : std::uint8_t {
  step,      // the step's seconds alone
  stalls,    // stall_fraction and collective_seconds: events where the compute lane may have to wait, and
             // around collectives
  timeline,  // stalls, and Engine::last_timeline: events around every instruction
};

struct EngineOptions {
  // Makes the graph's collectives; required for a rank's graph (Graph::share), with the same rank and size.
  // The ranks make their engines together, and then the same steps, each on a thread or in a process of its
  // own. Plan, seed and first step must be the same on all ranks, else InvalidInput on all: two valid plans
  // may order collectives differently, and a communicator tells calls apart by their sizes alone. The
  // communicator must outlive the engine; an engine that cannot be made, or a step that fails, on any rank
  // ends the communicator for all.
  Communicator* communicator = nullptr;
  std::uint64_t seed = 1;
  bool validate = true;  // judge the plan first; throws InvalidInput when it is invalid
  Measurement measurement = Measurement::stalls;
  // False: parameters start at zero, for a caller that writes them all from a file.
  bool initialise = true;
  // Number of the first step that the engine makes: as many were completed by the run whose state the caller
  // writes into it. Random draws, bias correction and reports count from there.
  std::uint64_t first_step = 0;
  // Verify mode: the results of every op that the plan replays are hashed when the op is first launched and
  // again after its replay; a difference throws RecomputeMismatch. Slow: waits for each such launch and
  // copies its results to the host, through page-locked memory of its own (at most 4 MiB, beside the plan's).
  // The numbers stay the same.
  bool verify_recompute = false;
  // If the host cannot page-lock a bucket that the plan has page-locked: true takes ordinary memory
  // (Engine::unpinned), false throws OutOfMemory. The numbers stay the same. On a card, transfers of ordinary
  // memory are slow, and nothing overlaps them: see Device::copy.
  bool pageable_fallback = false;
  Machine machine;                     // modelled op times, for a device that runs in virtual time
  std::optional<LaunchTable> kernels;  // kernels of the compute lane; default: launch_table_for(device)
  // Kernels of the host lane. Default: the CPU's; on a simulated device `kernels`, if given.
  std::optional<LaunchTable> host_kernels;
};

struct StepOptions {
  double learning_rate = 1e-3;
  // True: updates that the plan speculates are made before the gate. It changes the time, no bit. Not set:
  // they are made, unless each of the last Engine::clipped_in_a_row steps was clipped.
  std::optional<bool> speculate = std::nullopt;
  // Scales the step's gradients. If the scale is above LossScale::least and the gradient norm is not finite
  // while the loss is, the step counts but changes no weight or optimizer state; tell `next` of it. Not set:
  // scale 1, and such a norm is NonFinite. InvalidInput if it is not valid, or the plan has
  // Plan::optimizer_in_backward.
  std::optional<LossScale> loss_scale = std::nullopt;
};

struct StepReport {
  std::uint64_t step = 0;  // 0-based index of the step that was made
  double loss = 0;
  double grad_norm = 0;
  double seconds = 0;  // time from the previous step's end to this step's end, less `idle_seconds`
  // Time between the two steps with nothing in flight: from the end of a drain (`drain`, `read`, `write`,
  // `fill`, `last_timeline`) to the begin of this step. 0 if the caller did not drain.
  double idle_seconds = 0;
  // Part of `seconds` in which the compute lane had nothing to run. 0 if not measured.
  double stall_fraction = 0;
  Bytes h2d_bytes = 0;  // measured in this step, without the copies of verify mode
  Bytes d2h_bytes = 0;
  Bytes peer_bytes = 0;  // bytes received from the other ranks, padding included
  // Seconds this rank spent in collectives, waiting for other ranks included. 0 if not measured.
  double collective_seconds = 0;
  Bytes device_peak_bytes = 0;         // highest device byte touched so far
  std::uint64_t verified_replays = 0;  // replays whose bits were compared in this step (verify mode)
  double clip_scale = 1;               // factor on the gradients; below 1: the step was clipped
  bool overflowed = false;             // true: the norm is not finite, and the step changed nothing
  // Updates that began before the gate. Commits undo all of them if the step was clipped or overflowed, else
  // none.
  std::uint64_t speculated_updates = 0;
};

// The values of one input tensor.
struct InputData {
  TensorId tensor = no_id;
  std::span<const std::int32_t> values;
};

// Returns the largest part of the plan's arena that holds nothing between two steps: residents alone stay.
ByteRange free_between_steps(const Plan& plan);
// Returns the graph by which an evaluation beside an engine of `lender` and `plan` is planned: `graph`
// without the parameters that the plan keeps on the device. Ops use these where they are.
Graph planned_beside(const Graph& graph, const Graph& lender, const Plan& plan);

class Engine {
 public:
  // Graph and plan are copied; the device must outlive the engine. Parameters start from their
  // initializers, optimizer state at zero. Throws InvalidInput for a plan that the validator rejects
  // or an op without a kernel, OutOfMemory when the device cannot hold the plan's arena or the host its
  // buckets.
  Engine(Device& device, const Graph& graph, const Plan& plan, const EngineOptions& options = {});
  // An engine that evaluates the model of `lender` between its steps, by a plan of planned_beside. Its arena
  // is the part of the lender's arena that is free then (free_between_steps), and it takes each parameter
  // from where the lender keeps it, by name: it has no memory of its own but for inputs, results and values
  // that the plan offloads. Its steps drain the lender first, and are no steps of the lender. `read`, `write`
  // and `fill` throw InvalidInput, since the values are the lender's; `options.communicator` and `initialise`
  // are ignored. The lender must outlive it. Throws InvalidInput for a lender that is such an engine itself,
  // for a graph that trains a parameter, has one that the lender's graph has not in the same type and shape,
  // or is a rank's, and for a plan that does not fit. `step` throws DeviceError if the lender's values are
  // lost, or do not come to the device.
  Engine(Engine& lender, const Graph& graph, const Plan& plan, const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // After this many clipped steps in a row the engine expects the next one to be clipped.
  static constexpr std::uint32_t clipped_in_a_row = 4;

  // Runs one step; returns when its loss and norm are known. Updates may still run and overlap the next step.
  // Throws StepError; NonFinite if the loss or the norm is NaN or infinite (but see StepOptions::loss_scale);
  // RecomputeMismatch in verify mode; CommunicatorError, which names the rank, if another rank failed first.
  // An error fails the communicator on all ranks.
  StepReport step(std::span<const InputData> inputs, const StepOptions& options);

  // Buckets that the plan has page-locked and that are not (EngineOptions::pageable_fallback).
  std::span<const BucketId> unpinned() const;

  // Waits until nothing is in flight.
  void drain();
  std::uint64_t completed_steps() const;

  // Read and write the current value of a parameter or optimizer state (drain first). Throw InvalidInput for
  // any other tensor, DeviceError when the device fails: `read` can then be repeated, and after a failed
  // `write` the tensor's value is unknown until it is written again.
  std::vector<std::byte> read(TensorId tensor);
  void write(TensorId tensor, std::span<const std::byte> value);
  // Read and write a part of the value, from byte `offset` on.
  void read(TensorId tensor, Bytes offset, std::span<std::byte> into);
  void write(TensorId tensor, Bytes offset, std::span<const std::byte> value);
  // Writes the whole value where it lives: calls `piece`, which fills one part, for consecutive parts. A
  // value with a place on the host is one part, its own bytes there. Other values have parts of at most 4 MiB
  // in page-locked memory, which begin at multiples of 64 bytes. Rethrows what `piece` throws; the value is
  // then unknown until it is written again.
  using FillPiece = std::function<void(Bytes offset, std::span<std::byte> piece)>;
  void fill(TensorId tensor, const FillPiece& piece);

  // Measured intervals of the last step whose commit phase has finished, by instruction, seconds
  // from that step's start; empty unless Measurement::timeline. Drains first.
  std::vector<Interval> last_timeline();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
