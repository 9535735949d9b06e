// Verify mode (EngineOptions::verify_recompute): compares the bits that a replay writes with the bits that
// the op wrote when it was first launched.
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

// A result of a replay that differs from the first launch. The engine makes a RecomputeMismatch of it.
struct ReplayDifference : std::exception {
  InstructionId instruction = 0;
  TensorId tensor = no_id;
  std::uint64_t expected = 0;  // hash of the first launch's result; the next field is the replay's
  std::uint64_t found = 0;
  const char* what() const noexcept override { return "a replay wrote other bits"; }
};

class ReplayVerifier : public Follower {
 public:
  // All arguments must outlive the verifier. Takes staging_memory for a compared tensor, at most 4 MiB.
  // Throws OutOfMemory.
  ReplayVerifier(Device& device, const Graph& graph, const Plan& plan, const Lanes& lanes,
                 std::span<const BoundInstruction> bound, bool pageable_fallback);

  void begin_step();
  // If the instruction's results are compared, waits for its work and copies them to the host on the d2h
  // lane, as much at a time as the staging memory holds; no copy is in flight on return. Throws
  // ReplayDifference, or DeviceError if any work that it waited for failed: then copies may be in flight, and
  // the lanes must settle before this is destroyed. Allocates nothing unless it throws.
  void follow(InstructionId id) override;

  const RecomputeTracker& tracker() const { return tracker_; }
  std::uint64_t replays() const { return replays_; }             // replays compared in this step
  Bytes copied_bytes() const { return reader_.copied_bytes(); }  // bytes copied from the device in this step

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
