// Gemini with the placement policy "cpu": Colossal-AI (Li et al., "Colossal-AI: A Unified Deep Learning
// System For Large-Scale Parallel Training", arXiv 2110.14883), after PatrickStar's chunks (Fang et al.,
// arXiv 2108.05818). Read in its sources: colossalai/zero/gemini/placement_policy.py (CPUPlacementPolicy),
// gemini_ddp.py and chunk/chunk.py.
//
// Like the original: parameters are in chunks of 32 Mi elements (`min_chunk_size_m`). A chunk comes in
// when an op needs it, and is released before an op that needs another chunk; so it comes again for
// rebuilding and for backward. Released chunks are not copied back, because the host still has them
// (`cpu_vis_flag`). Gradients go to the host chunk by chunk. The update is on the host (CPUAdam), and the
// next forward begins after the whole update. Activations: block inputs are kept on the device and blocks
// rebuilt, or nothing is rebuilt.
//
// Several ranks: a chunk consists of all ranks' shares of it. A chunk is gathered when it comes in and
// dropped when it is released.
//
// Overlap: version 0.1.13, for which there are published figures, moves a chunk when an op needs it; chunks
// and ops take turns (distance 0). Later versions can fetch the next chunk beside the op
// (`access_chunk(async_access)`, `shard_move(non_blocking)`): distance 1. The faster distance that fits is
// taken, so that the emulation is not slower than any version.
//
// Unlike the original: after an update the original brings a chunk's f32 master weights to the device, makes
// the 16-bit weights there and copies these back (`__paired_shard_move`): 4 bytes for each parameter that the
// emulation does not move. In the emulation a gradient does not take the place of its parameter's chunk, so
// backward holds one chunk more. Parameters that share a tiny bucket stay for the step; the original has them
// in the chunks.
#include "offload/plan/policies/policies.h"

namespace stowage {

void add_gemini_cpu(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  constexpr Bytes chunk_elements = Bytes{32} << 20U;
  constexpr Bytes tiny = 16;  // a bucket below 1/16 of a chunk is tiny
  const Problem& problem = problems.with_buckets(problems.share_bytes(chunk_elements));
  for (Activations activations : {Activations::checkpoint, Activations::keep}) {
    Choices choices = policy_choices(problem, activations, LoadChoice::each_op);
    choices.until_next_load = true;
    for (BucketId id : problem.layout.parameters)
      if (problem.layout.buckets[id].bytes < problem.layout.target_bytes / tiny &&
          id == problem.layout.parameters.front() && problem.layout.parameters.size() > 1)
        choices.loads[id] = LoadChoice::held;
    for (std::uint32_t distance : {0U, 1U})
      members.push_back({.problem = &problem,
                         .activations = activations,
                         .choices = choices,
                         .waits = {.for_updates = true, .one_after_another = distance == 0},
                         .distance = distance});
  }
}

}  // namespace stowage
