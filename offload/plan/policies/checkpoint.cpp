// Gradient checkpointing: Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174,
// sections 3 and 4, as it is used for Transformers: one segment for each block.
//
// Like the original: parameters, gradients and optimizer state stay on the device. The input of each block is
// kept. The rest of the block's activations are rebuilt from it directly before the block's backward.
//
// Several ranks: each rank's shares stay on its device. Whole parameters are gathered anew where a block is
// rebuilt, just as its activations are.
//
// Unlike the original: a segment is one block, not the square root of the number of blocks.
#include "offload/plan/policies/policies.h"

namespace stowage {

void add_checkpoint(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  const Problem& problem = problems.with_single_tensors();
  members.push_back({.problem = &problem,
                     .choices = policy_choices(problem, Activations::checkpoint, LoadChoice::resident),
                     .waits = {},
                     .distance = 2});
}

}  // namespace stowage
