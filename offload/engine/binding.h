// Binding looks up once what a plan's steps need: kernels, addresses, declared accesses and modelled times of
// every instruction. So no step allocates or searches.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/arena.h"
#include "offload/engine/joint.h"
#include "offload/engine/lent.h"
#include "offload/engine/step_events.h"
#include "stowage/device.h"
#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

// The context of an op's work on a lane. The work itself writes `done`; the caller may read it after it has
// synchronised with the work.
struct Work {
  Kernel kernel = nullptr;
  const Op* op = nullptr;
  std::span<const Operand> reads;
  std::span<const Operand> writes;
  const StepContext* step = nullptr;
  void* stream = nullptr;  // native stream of the lane
  std::span<std::byte> record{};
  bool begun = false;
  bool done = false;

  LaunchArguments arguments() const { return {op, reads, writes, *step, stream, record}; }
  static void run(void* work);
};

struct DeviceRange {
  std::byte* address = nullptr;
  Bytes bytes = 0;
};

struct BoundInstruction {
  std::string label;         // name of the op, or of the transfer's bucket
  std::string name;          // name in the device's reports: the op, or "prefetch <bucket>"
  Bytes bytes = 0;           // bytes that the transfer moves, or that the op touches
  double seconds = 0;        // modelled seconds; 0 for transfers
  std::vector<Moved> moved;  // of a transfer; one part, unless parameters are lent
  // Ops. One work per parity: the step before may still run when this one is enqueued.
  std::vector<Operand> reads;
  std::vector<Operand> writes;
  std::vector<Access> accesses;
  std::array<Work, 2> work;
  bool is_collective = false;          // the op is a collective, and `work` is unused
  Kernel undo = nullptr;               // kernel that takes back a speculated update
  std::unique_ptr<JointLaunch> joint;  // this commit with later ones, which are enqueued here
  bool is_enqueued_before = false;     // the commit belongs to an earlier one's joint launch
  // Lifetimes of buckets with several tensors that this launch is the first to use.
  std::vector<DeviceRange> begun;
  std::vector<DeviceRange> ended;  // lifetimes that are dead after this instruction
};

// Where a tensor is inside its bucket.
struct TensorPlace {
  BucketId bucket = no_id;
  Bytes offset = 0;
};
std::vector<TensorPlace> tensor_places(const Graph& graph, const Plan& plan);

struct BindingInput {
  const Graph& graph;
  const Plan& plan;
  const LaunchTable& kernels;             // kernels of the compute lane
  const LaunchTable& host_kernels;        // kernels of the host lane
  std::array<void*, lane_roles> streams;  // Lanes::streams
  const Machine& machine;
  std::span<const TensorPlace> places;
  const Arena& arena;
  std::span<std::byte* const> host;  // buffers by bucket; null for a bucket without a place on the host
  std::span<std::byte> undo;         // Plan::undo_bytes
  // By tensor of the graph, where parameters are another engine's; else empty. Ops use those that are on the
  // device in their place there, and transfers pass them over.
  std::span<const LentParameter> lent;
  std::span<const StepContext, 2> steps;
};

// Returns the instructions, bound. Bound instructions point into each other, the graph and `steps`: the
// vector may be moved but not copied. Requires a plan that check_executable accepts. Throws InvalidInput for
// an op without a kernel, an operand without a place, and bytes of a gradient that the gradient ring does not
// have all at once.
std::vector<BoundInstruction> bind(const BindingInput& input);

std::vector<InstructionId> collectives_of(std::span<const BoundInstruction> bound);

}  // namespace stowage
