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
// window's blocks are not kept across steps. Several streams of samples on one device and NVMe are left out.
#include <algorithm>

#include "offload/plan/policies/policies.h"

namespace stowage {
namespace {

// Of the block with most of them.
Bytes block_parameter_bytes(const Graph& graph) {
  std::vector<Bytes> bytes(graph.unit_names.size(), 0);
  std::vector<std::uint8_t> counted(graph.tensors.size(), 0);
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || op.unit >= bytes.size()) continue;
    for (TensorId id : op.reads) {
      if (graph.tensor(id).kind != TensorKind::parameter || counted[id]) continue;
      counted[id] = 1;
      bytes[op.unit] += graph.tensor(id).bytes();
    }
  }
  // The ends of the model, embedding and head, are not what the window is made of.
  const auto middle = bytes.size() > 2 ? bytes.begin() + 1 : bytes.begin();
  const auto end = bytes.size() > 2 ? bytes.end() - 1 : bytes.end();
  return middle == end ? 0 : *std::max_element(middle, end);
}

}  // namespace

void add_layer_stream(PolicyProblems& problems, std::vector<PolicyMember>& members) {
  const Problem& problem = problems.with_buckets(block_parameter_bytes(problems.graph()));
  for (Activations activations : {Activations::checkpoint, Activations::keep})
    for (std::uint32_t distance : {1U, 2U, 4U, 8U})
      members.push_back({.problem = &problem,
                         .activations = activations,
                         .choices = policy_choices(problem, activations, LoadChoice::each_unit),
                         .handicaps = {},
                         .distance = distance});
}

}  // namespace stowage
