// ZeRO-Infinity with everything in host memory: Rajbhandari et al., "ZeRO-Infinity: Breaking the GPU Memory
// Wall for Extreme Scale Deep Learning", SC 2021 (arXiv 2104.07857). DeepSpeed's ZeRO-3 Offload is a part of
// ZeRO-Infinity. On several ranks: ZeRO-3 with `offload_param` and `offload_optimizer` (DeepSpeed's
// runtime/zero/partitioned_param_coordinator.py, config.py).
//
// Like the original: parameters are on the host. Parameters are brought in for each module before its
// forward, again for its rebuilding and backward, and released after it. Gradients go to the host during
// backward. Optimizer state and update are on the host, and the next forward begins after the whole update.
// Block inputs are kept on the device or on the host and blocks are rebuilt, or nothing is rebuilt.
// Parameters come in pieces, 2 or 8 of them ahead. A piece has 5e7 elements (`stage3_prefetch_bucket_size`,
// of all ranks' shares together) or the link's efficient size.
//
// Several ranks: each rank brings its share over its own link. Whole parameters are gathered before a
// module's forward and again before its rebuilding and backward, and dropped after each. Gradients are
// reduced and scattered, and each rank's share goes to the host.
//
// Unlike the original: no NVMe, and no memory-centric tiling of single operators. Small parameters are not
// kept on the device (`stage3_param_persistence_threshold`), but they share transfers with others. Only the
// budget limits live parameters, not `stage3_max_live_parameters`. No parameter stays because it is soon
// needed again (`stage3_max_reuse_distance`).
#include "offload/plan/policies/policies.h"

namespace stowage {

void add_zero_infinity(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  constexpr Bytes piece_elements = 50'000'000;
  for (Bytes target : {problems.share_bytes(piece_elements), efficient_bucket_bytes(problems.machine())}) {
    const Problem& problem = problems.with_buckets(target);
    for (Activations activations :
         {Activations::checkpoint_on_host, Activations::checkpoint, Activations::keep})
      for (std::uint32_t distance : {2U, 8U})
        members.push_back({.problem = &problem,
                           .activations = activations,
                           .choices = policy_choices(problem, activations, LoadChoice::each_unit),
                           .waits = {.for_updates = true},
                           .distance = distance});
  }
}

}  // namespace stowage
