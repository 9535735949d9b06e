// The text of train_gpt and train_bert for people: the table at the start and the summary at the end.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "samples/options/options.h"
#include "samples/task/task.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"
#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"
#include "tools/calibrate/fit.h"

namespace stowage::samples {

// Wall seconds of the stages before the first step.
struct StartSeconds {
  double device = 0;  // seconds to open the device, and to calibrate if there is no machine file
  double plan = 0;
  double engine = 0;   // seconds for pinned memory, the arena and initial weights
  double pinning = 0;  // part of `engine` spent on page-locking
};

// Facts that are known before the first step.
struct Setup {
  const Options* options = nullptr;
  const Graph* graph = nullptr;  // graph of the plan: the first device's
  const Graph* model = nullptr;  // graph with whole parameters
  const Plan* plan = nullptr;
  Machine machine;
  DataDescription data;
  std::uint64_t epoch_samples = 0;  // Task::samples
  // Values of the planner's Answer.
  Bytes need = 0;
  Bytes minimum = 0;
  Bytes peak = 0;
  std::string device;              // name of the device, and why it was chosen
  std::string planned_for;         // RunDevice::planned_for
  FittedRates fitted{true, true};  // RunDevice::fitted
  std::string evaluation;          // where evaluations are made; empty: nowhere
  StartSeconds start;

  std::uint64_t tokens_per_step() const {
    return static_cast<std::uint64_t>(options->model.batch * options->model.sequence);
  }
};

std::string setup_table(const Setup& setup);

// Gathers the numbers of the summary.
class RunStatistics {
 public:
  void add(const StepReport& report);
  void add(const AttentionUse& step);  // `step`: launches of a step on a card
  std::uint64_t steps() const { return steps_; }
  double last_mean_loss() const;      // mean of at most the last 20 steps; NaN without steps
  std::uint64_t last_losses() const;  // number of losses in that mean
  double seconds() const { return seconds_; }
  double between_seconds() const { return between_seconds_; }  // seconds between steps, not in seconds()
  // Mean over the steps in the steady state (all but the first two where there are more).
  double step_seconds() const;
  double stall_fraction() const;
  double collective_seconds() const;  // seconds of a step in collectives
  Bytes device_peak_bytes() const { return device_peak_bytes_; }
  // Bytes of the last step.
  Bytes h2d_bytes() const { return h2d_bytes_; }
  Bytes d2h_bytes() const { return d2h_bytes_; }
  Bytes peer_bytes() const { return peer_bytes_; }
  std::uint64_t verified_replays() const { return verified_replays_; }  // sum over all steps
  std::uint64_t clipped_steps() const { return clipped_steps_; }
  std::uint64_t overflowed_steps() const { return overflowed_steps_; }  // steps that changed nothing
  // Updates before the gate, of all steps; and those of clipped and overflowed steps, which were taken back.
  std::uint64_t speculated_updates() const { return speculated_updates_; }
  std::uint64_t undone_updates() const { return undone_updates_; }
  const AttentionUse& attention() const { return attention_; }  // sum over all steps
  // A text about coded activations; empty if there are none.
  void set_codes(std::string text) { codes_ = std::move(text); }
  const std::string& codes() const { return codes_; }

 private:
  std::uint64_t steady_steps() const { return steps_ > start_up ? steps_ - start_up : steps_; }

  static constexpr std::uint64_t window = 20;
  static constexpr std::uint64_t start_up = 2;
  double losses_[window] = {};
  std::uint64_t steps_ = 0;
  double seconds_ = 0;
  double between_seconds_ = 0;
  double steady_seconds_ = 0;
  double steady_stall_ = 0;
  double steady_collectives_ = 0;
  Bytes device_peak_bytes_ = 0;
  Bytes h2d_bytes_ = 0;
  Bytes d2h_bytes_ = 0;
  Bytes peer_bytes_ = 0;
  std::uint64_t verified_replays_ = 0;
  std::uint64_t clipped_steps_ = 0, overflowed_steps_ = 0, speculated_updates_ = 0, undone_updates_ = 0;
  AttentionUse attention_;
  std::string codes_;
};

// The methods that computed attention, "cudnn+own"; empty if none did. Bits depend on them.
std::string attention_methods(const AttentionUse& use);

std::string summary(const Setup& setup, const RunStatistics& run);

// Returns a sentence for values that are not finite, with what to do. `finding`: the value and its place;
// `checkpoint`: path of the checkpoint to go back to, empty: there is none.
std::string divergence_message(const std::string& finding, const Options& options,
                               const std::string& checkpoint);
std::string divergence_message(const NonFinite::Finding& finding, const Options& options,
                               const std::string& checkpoint);

// Returns a sentence for a budget that no plan fits, with the smallest budget that works.
std::string infeasible_message(const Infeasible& infeasible, Policy policy);

// Page-locked memory of the plan that the host could not page-lock: buckets that are ordinary memory.
struct Unpinned {
  Bytes bytes = 0;
  Bytes in_bytes = 0, out_bytes = 0;  // bytes that transfers move in each step
};
Unpinned unpinned_of(const Plan& plan, std::span<const BucketId> buckets);

// Returns lines that say how much memory is not page-locked, what that costs and how to avoid it; empty if
// all is page-locked.
std::string unpinned_note(const Plan& plan, const Machine& machine, std::span<const BucketId> buckets);

}  // namespace stowage::samples
