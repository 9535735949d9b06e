// Verify mode: compares the bits of what a replay has rebuilt with those that the op wrote when it was first
// launched (EngineOptions::verify_recompute).
#pragma once

#include <cstdint>
#include <exception>
#include <span>

#include "offload/engine/binding.h"
#include "offload/engine/lanes.h"
#include "offload/engine/result_reader.h"
#include "offload/engine/step_runner.h"
#include "offload/recompute/tracker.h"
#include "stowage/device.h"

namespace stowage {

// What a replay differs in. The engine makes a RecomputeMismatch of it.
struct ReplayDifference : std::exception {
  InstructionId instruction = 0;
  TensorId tensor = no_id;
  std::uint64_t expected = 0;  // hashes
  std::uint64_t found = 0;
  const char* what() const noexcept override { return "a replay wrote other bits"; }
};

class ReplayVerifier : public Follower {
 public:
  // All must outlive it. Takes staging_memory for a compared tensor, at most 4 MiB. Throws OutOfMemory.
  ReplayVerifier(Device& device, const Graph& graph, const Plan& plan, const Lanes& lanes,
                 std::span<const BoundInstruction> bound, bool pageable_fallback);

  void begin_step();
  // The instruction's work has just been enqueued; all that it waits for has too. Where its bits are
  // compared, waits for it, and brings them to the host on the d2h lane, a staging's worth at a time; nothing
  // of that is in flight on return. Throws ReplayDifference, or DeviceError for a failure of any of the work
  // that it waited for: then copies may be in flight, and the lanes must settle before anything of this goes.
  // Allocates nothing unless it throws.
  void follow(InstructionId id) override;

  const RecomputeTracker& tracker() const { return tracker_; }
  std::uint64_t replays() const { return replays_; }             // compared in this step
  Bytes copied_bytes() const { return reader_.copied_bytes(); }  // from the device in this step

 private:
  std::uint64_t hash(const Operand& value);

  Device& device_;
  const Graph& graph_;
  const Plan& plan_;
  const Lanes& lanes_;
  const std::span<const BoundInstruction> bound_;
  RecomputeTracker tracker_;
  ResultReader reader_;
  std::uint64_t replays_ = 0;
};

}  // namespace stowage
