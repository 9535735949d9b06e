// Layers through a window: STRONGHOLD, Sun et al., "STRONGHOLD: Fast and Affordable Billion-Scale Deep
// Learning Model Training", SC 2022; its artifact, github.com/strongh2/sc22-ae.
//
// Like the original: a transfer moves a whole Transformer block. A window of consecutive blocks is on the
// device; it moves on in forward and back in backward. Beside the computation the next block comes in and the
// gradients of a finished block go out. The last window of forward is still on the device when backward
// begins. Optimizer state and update are on the host, beside the device's work. Block inputs are kept on the
// device and blocks are rebuilt (`--checkpoint-activations`), or nothing is rebuilt. Windows reach 1, 2, 4 or
// 8 blocks ahead: the original chooses its window by a model of its own, this emulation by simulation.
//
// Unlike the original: the original updates a block while backward goes on with the block before it. With
// exact clipping no update may begin before the end of backward, so here updates overlap the next forward
// instead. The first window's blocks are not kept across steps. On several ranks each rank has a share of
// every block; blocks are gathered and dropped as in ZeRO-3. The original's use of several devices, several
// streams of samples on one device, and NVMe are not emulated.
#include "offload/plan/policies/policies.h"

namespace stowage {

void add_layer_stream(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  const Problem& problem = problems.with_buckets(problems.block_parameter_bytes());
  for (Activations activations : {Activations::checkpoint, Activations::keep})
    for (std::uint32_t distance : {1U, 2U, 4U, 8U})
      members.push_back({.problem = &problem,
                         .activations = activations,
                         .choices = policy_choices(problem, activations, LoadChoice::each_unit),
                         .waits = {},
                         .distance = distance});
}

}  // namespace stowage
