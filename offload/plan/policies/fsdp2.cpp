// PyTorch's fully_shard ("FSDP2") with CPUOffloadPolicy: Zhao et al., "PyTorch FSDP: Experiences on Scaling
// Fully Sharded Data Parallel", VLDB 2023 (arXiv 2304.11277), for the idea; the documentation and sources of
// torch.distributed.fsdp.fully_shard for what it does (_fsdp_param_group.py, _fsdp_api.py).
//
// As the original: one group of parameters for each Transformer block. A rank's share of a group is copied
// from the host, then gathered from all ranks as a whole, before the block's forward and again before its
// backward (`reshard_after_forward`), or stays in between (without it). The next group comes in while a block
// computes: one ahead as it is, two as `set_modules_to_forward_prefetch` and its counterpart for backward can
// say. A block's gradients are reduced and scattered, and each rank's share goes to the host, while backward
// goes on. After backward the host updates all shares; nothing of the next step begins before. Activations:
// blocks rebuilt from inputs on the device, or nothing rebuilt.
//
// Otherwise: the token table, which the original's root module keeps from forward to backward, does so here,
// too, but comes with the group that it is near to.
#include "offload/plan/policies/policies.h"

namespace stowage {

void add_fsdp2(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  const Problem& problem = problems.with_buckets(problems.block_parameter_bytes());
  for (Activations activations : {Activations::checkpoint, Activations::keep})
    for (Gathered gathered : {Gathered::again, Gathered::stay}) {
      if (gathered == Gathered::stay && problems.graph().share.ranks == 1) continue;  // nothing is gathered
      for (std::uint32_t distance : {1U, 2U})
        members.push_back({.problem = &problem,
                           .activations = activations,
                           .gathered = gathered,
                           .choices = policy_choices(problem, activations, LoadChoice::each_unit, gathered),
                           .waits = {.for_updates = true},
                           .distance = distance});
    }
}

}  // namespace stowage
