// ZeRO-Offload: Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021
// (arXiv 2101.06840), its schedules for one GPU and, on top of ZeRO-2, for several.
//
// As the original: 16-bit parameters stay on the device through the whole step; gradients go to the host
// during backward as they are made, with the link and the device at work at the same time; optimizer state
// and update are on the host; updated parameters are copied back while the host works on the next ones; the
// next forward begins when all of them are back. Activations: each Transformer block's input is kept on the
// device and the block rebuilt. Several ranks: each has whole parameters on its device, a share of gradients
// and optimizer state, and the update of this share alone; whole parameters are gathered once a step.
//
// Otherwise: the one-step delayed update, which trains other numbers, is left out. Gradient
// buffers: 2 or 8 gradients under way, where the original has two buffers of `reduce_bucket_size`. In a plan
// the parameters' bytes are taken anew in each step, by a copy from the host that the original makes at the
// end of the step before: the same copies at the same time. Whole parameters are gathered before each one's
// first use in forward, where the original gathers all of them at the end of the step before; they are not
// held from the end of backward on.
#include "offload/plan/policies/policies.h"

namespace stowage {

void add_zero_offload(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  const Problem& problem = problems.with_buckets(efficient_bucket_bytes(problems.machine()));
  for (Activations activations : {Activations::checkpoint, Activations::keep}) {
    Choices choices = policy_choices(problem, activations, LoadChoice::held, Gathered::stay);
    choices.held_all_step = true;
    for (std::uint32_t distance : {2U, 8U})
      members.push_back({.problem = &problem,
                         .activations = activations,
                         .gathered = Gathered::stay,
                         .choices = choices,
                         .waits = {.for_loads = true},
                         .distance = distance});
  }
}

}  // namespace stowage
