// Gradient checkpointing: Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174,
// sections 3 and 4, as it is used for Transformers: one segment for each block.
//
// As the original: parameters, gradients and optimizer state stay on the device; the input of each block is
// kept, and the rest of the block's activations are rebuilt from it directly before its backward.
//
// Several ranks: the shares stay, and whole parameters are gathered anew where a block is rebuilt, as its
// activations are.
//
// Otherwise: segments are blocks, not the square root of their number.
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
