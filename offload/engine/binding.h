// Binding: everything of a plan that can be looked up once: kernels, addresses, declared accesses
// and modelled times of every instruction. No step allocates or searches.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "allocator/arena.h"
#include "offload/engine/step_events.h"
#include "stowage/device.h"
#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

// The context of one op's work on a lane. `done` is written by the work itself; the caller may read
// it after it has synchronised with that work.
struct Work {
  Kernel kernel = nullptr;
  const Op* op = nullptr;
  std::span<const Operand> reads;
  std::span<const Operand> writes;
  const StepContext* step = nullptr;
  void* stream = nullptr;  // the lane's native stream
  std::span<std::byte> record{};
  bool begun = false;
  bool done = false;

  static void run(void* work);
};

struct DeviceRange {
  std::byte* address = nullptr;
  Bytes bytes = 0;
};

struct BoundInstruction {
  std::string label;   // the op, or the bucket of a transfer
  std::string name;    // for the device's reports: the op, or "prefetch <bucket>"
  Bytes bytes = 0;     // moved, or touched by the op
  double seconds = 0;  // modelled; 0 for transfers
  // Transfers.
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  // Ops. One work per parity: the step before may still run when this one is enqueued.
  std::vector<Operand> reads;
  std::vector<Operand> writes;
  std::vector<Access> accesses;
  std::array<Work, 2> work;
  bool is_collective = false;  // and the work is none
  Kernel undo = nullptr;       // of a speculated update
  // Lifetimes that this instruction is the first to write, as far as it leaves bytes of them to others.
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
  const LaunchTable& kernels;             // of the compute lane
  const LaunchTable& host_kernels;        // of the host lane
  std::array<void*, lane_roles> streams;  // Lanes::streams
  const Machine& machine;
  std::span<const TensorPlace> places;
  const Arena& arena;
  std::span<std::byte* const> host;  // by bucket, null where it has no place on the host
  std::span<std::byte> undo;         // Plan::undo_bytes
  std::span<const StepContext, 2> steps;
};

// The results point into each other, the graph and `steps`: they may move but not be copied from.
// Throws InvalidInput when the plan does not hang together, or for an op without a kernel.
std::vector<BoundInstruction> bind(const BindingInput& input);

}  // namespace stowage
