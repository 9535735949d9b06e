// The least time of a stage, by sums over the ops of its half-blocks. It is the lowest of three rungs of
// cost; the second is the planner's lower bound of the stage's graph (stage.h), the third its plan.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/parallel/stage.h"
#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

// Sums over a half-block's ops. Bytes are those of one device.
struct HalfBlockSums {
  double forward_seconds = 0;      // compute lane, one micro-batch
  double backward_seconds = 0;     // the same
  double peer_seconds = 0;         // gathers and exchanges of a step with one micro-batch
  double host_update_seconds = 0;  // the same on the host
  double weight_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  double sent_bytes = 0;  // over the cut behind the half-block, in one micro-batch's forward
  friend bool operator==(const HalfBlockSums&, const HalfBlockSums&) = default;
};

// Returns the sums of each half-block of a step with one micro-batch. A parameter counts for the first
// half-block that uses it.
std::vector<HalfBlockSums> half_block_sums(const Graph& graph, const Machine& machine);

// The memory of each device of a stage.
struct StageRoom {
  const Machine* machine = nullptr;  // not null
  Bytes arena = unlimited;           // device memory without Machine::overhead_bytes
  Bytes host = unlimited;            // the device's part of host memory
};

// Returns what a step of these half-blocks with so many micro-batches takes at the least: the compute lane's
// ops once; gathers and exchanges once; and of the parameters that do not fit with their state and gradients,
// each transfer once and the host's update. Equal fractions of weights, gradients and state count as away,
// which is exact where all parameters have the same bytes of state. Infinite if they do not fit into host
// memory.
double least_seconds(const HalfBlockSums& stage, std::int64_t micro_batches, const StageRoom& room);

// Sums over the first half-blocks, so that each stage costs one subtraction.
class PrefixSums {
 public:
  explicit PrefixSums(const std::vector<HalfBlockSums>& half_blocks);
  std::uint32_t half_blocks() const { return static_cast<std::uint32_t>(sums_.size()) - 1; }
  // Returns the sums of half-blocks [first, last). `sent_bytes` is that of the last one.
  HalfBlockSums of(std::uint32_t first, std::uint32_t last) const;
  // Returns the sums of all ranges together. `sent_bytes` is that of the first one's last half-block.
  HalfBlockSums of(const std::vector<HalfBlocks>& ranges) const;
  double sent_bytes(std::uint32_t cut) const { return sent_[cut]; }  // over the cut before half-block `cut`

 private:
  std::vector<HalfBlockSums> sums_;
  std::vector<double> sent_;
};

// Returns the cuts 0 < … < half-blocks of `stages` stages whose slowest takes least by least_seconds.
// Requires no more stages than half-blocks.
std::vector<std::uint32_t> even_cuts(const PrefixSums& sums, std::uint32_t stages, std::int64_t micro_batches,
                                     const StageRoom& room);

}  // namespace stowage
