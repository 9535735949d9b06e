// Other systems as plans: from a graph and a machine, what each would do, as choices and waits.
//
// What all of them have in common, and where they are all treated better or otherwise than they were:
// - One engine, one allocator of arena bytes and one simulation: no fragmentation, no interpreter between
//   two kernels, transfers at the link's measured speed from page-locked memory.
// - The optimizer state is Stowage's, 10 bytes for each bf16 parameter rather than 12, with gradients in the
//   work type, so every emulation trains a somewhat larger model in the same host memory.
// - Exact clipping by the global norm: no update begins before the whole backward pass has ended. The
//   originals are used that way too, though some may begin earlier without it.
// - Activations as their users set them: each Transformer block's input is kept and the block rebuilt in
//   backward (gradient checkpointing), or nothing is rebuilt, where that fits and is faster.
// - Micro-batches go through each block together, so that its parameters come in, and are gathered, twice a
//   step at most. The originals run one micro-batch after another and do so for each of them.
// - On one of several ranks, collectives are ops of the graph, as in every plan of Stowage: the bytes of each
//   rank's part, exact sums in a fixed order, and what the peers send at the link's measured speed.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "offload/plan/schedule/candidate.h"

namespace stowage {

// How activations are treated: blocks rebuilt from inputs on the device, from inputs on the host, or all
// kept.
enum class Activations : std::uint8_t { checkpoint, checkpoint_on_host, keep };
std::string_view to_string(Activations activations);
// How whole parameters that were gathered of all ranks' shares are treated behind forward: they stay for
// backward, or are dropped and gathered anew.
enum class Gathered : std::uint8_t { stay, again };
std::string_view to_string(Gathered gathered);

// What a system waits for though its plan does not need it.
struct ExtraWaits {
  // With Choices::held_all_step: the step's first op waits for all parameters that come from the host.
  bool for_loads = false;
  // Nothing of a step is computed or brought in before the last host update of the step before has ended.
  bool for_updates = false;
  // No transfer runs beside an op: an op's prefetches start after the op before it has ended, and its
  // offloads end before the next op begins.
  bool one_after_another = false;
  friend bool operator==(const ExtraWaits&, const ExtraWaits&) = default;
};

// One configuration of an emulated system.
struct PolicyMember {
  Policy policy = Policy::none;
  const Problem* problem = nullptr;
  Activations activations = Activations::checkpoint;
  Gathered gathered = Gathered::again;
  Choices choices;
  ExtraWaits waits;
  std::uint32_t distance = 0;  // transfers that may go ahead of their use; 0: each between two ops
};

// Problems of the graph in whole blocks, by bucket size. Keeps references to graph and machine, which must
// outlive it, as it must outlive its members.
class PolicyProblems {
 public:
  // `bucket_bytes` 0: the size that the policy takes by itself.
  PolicyProblems(const Graph& graph, const Machine& machine, Bytes bucket_bytes, std::stop_token stop = {});

  const Machine& machine() const { return machine_; }
  const Graph& graph() const { return blocks_; }
  // Bytes of one element of the largest parameter.
  Bytes element_bytes() const;
  // Bytes that the rank's share has of so many elements.
  Bytes share_bytes(Bytes elements) const;
  // Parameters of the block with most of them, or the rank's share of these.
  Bytes block_parameter_bytes() const;
  // Of the same size the same problem.
  const Problem& with_buckets(Bytes target);
  // Each parameter and each gradient on its own, as where everything is resident.
  const Problem& with_single_tensors();

 private:
  const Problem& with(const BucketOptions& options);
  const Machine& machine_;
  Bytes bucket_bytes_;
  std::stop_token stop_;
  Graph blocks_;
  std::vector<std::pair<BucketOptions, std::unique_ptr<Problem>>> problems_;
};

// Everything but parameters: inputs held, activations and gathered parameters as said. A gathered parameter
// that several blocks read (the token table) is treated as a block's input.
Choices policy_choices(const Problem& problem, Activations activations, LoadChoice parameters,
                       Gathered gathered = Gathered::again);

// Each adds the configurations of its system to `members`: one file each, which names its source. A new
// system is one more file, an enumerator of Policy (planner.h) and a row of the table in policies.cpp.
void add_zero_offload(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_zero_infinity(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_gemini_cpu(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_layer_stream(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_checkpoint(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_fsdp2(PolicyProblems& problems, std::vector<PolicyMember>& members);

// Of one policy that is emulated.
std::vector<PolicyMember> policy_members(Policy policy, PolicyProblems& problems);
// Of all of them, as they are and without what holds them back (their waits; then also
// Choices::held_all_step): the automatic policy is never slower than one of them.
std::vector<PolicyMember> all_policy_members(PolicyProblems& problems);

// The member's schedule; the seconds that no plan of it undercuts; its plan without the lower bound.
Sketch policy_sketch(const PolicyMember& member);
double policy_least_seconds(const PolicyMember& member, const Draft& draft);
Plan policy_plan(const PolicyMember& member);

// The fastest configuration that fits, or what the least of them needs. Without the lower bound.
std::variant<Plan, Infeasible> plan_policy(Policy policy, PolicyProblems& problems, const Budget& budget);
// The least planned peak of its configurations.
Bytes policy_minimum_bytes(Policy policy, PolicyProblems& problems);

}  // namespace stowage
