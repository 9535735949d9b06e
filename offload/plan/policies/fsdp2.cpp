// PyTorch's fully_shard ("FSDP2") with CPUOffloadPolicy. The idea: Zhao et al., "PyTorch FSDP: Experiences on
// Scaling Fully Sharded Data Parallel", VLDB 2023 (arXiv 2304.11277). Its behaviour: the documentation and
// sources of torch.distributed.fsdp.fully_shard (_fsdp_param_group.py, _fsdp_api.py).
//
// Like the original: each Transformer block has one group of parameters. A rank's share of a group is copied
// from the host, then the whole group is gathered from all ranks. This happens before the block's forward and
// again before its backward (`reshard_after_forward`); without that option the whole group stays in between.
// The next group comes in while a block computes: one group ahead by default, two as
// `set_modules_to_forward_prefetch` and its counterpart for backward can say. While backward goes on, a
// block's gradients are reduced and scattered, and each rank's share goes to the host. After backward the
// host updates all shares; nothing of the next step begins before. Blocks are rebuilt from inputs on the
// device, or nothing is rebuilt.
//
// Unlike the original: the token table comes with the group that it is near to. The token table stays from
// forward to backward, as in the original, where the root module keeps it.
#include "offload/plan/policies/policies.h"

namespace stowage {

void add_fsdp2(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  const Problem& problem = problems.with_buckets(problems.block_parameter_bytes());
  for (Activations activations : {Activations::checkpoint, Activations::keep})
    for (Gathered gathered : {Gathered::again, Gathered::stay}) {
      // One rank gathers nothing.
      if (gathered == Gathered::stay && problems.graph().share.ranks == 1) continue;
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
