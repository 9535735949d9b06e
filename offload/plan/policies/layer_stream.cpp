// Layers through a window: STRONGHOLD, Sun et al., "STRONGHOLD: Fast and Affordable Billion-Scale Deep
// Learning Model Training", SC 2022; its artifact, github.com/strongh2/sc22-ae.
//
// As the original: the unit of transfer is a whole Transformer block; a window of consecutive blocks is on
// the device, and moves on in forward and back in backward, with the next block coming in and a done one's
// gradients going out beside the computation; the last window of forward is still there when backward begins;
// optimizer state and update are on the host, beside the device's work; block inputs are kept on the device,
// blocks rebuilt
// (`--checkpoint-activations`). Windows of 1, 2, 4 or 8 blocks ahead: the original chooses its window by a
// model of its own, this emulation by simulation.
//
// Otherwise: the original updates a block while backward goes on with the one before it; with exact clipping
// no update may begin before the end of backward, so here updates overlap the next forward instead. The first
// window's blocks are not kept across steps. On several ranks each has a share of
// every block, which is gathered and dropped as ZeRO-3 does; what the original does with several devices is
// not emulated. Several streams of samples on one device and NVMe are left out.
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
