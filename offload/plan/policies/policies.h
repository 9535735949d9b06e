// Other systems as plans: choices and extra waits say what each system would do with a graph on a machine.
//
// All emulations have the following in common. Some of these points treat the systems better than, or unlike,
// the originals.
// - One engine, one allocator of arena bytes and one simulation: no fragmentation, no interpreter between
//   two kernels, transfers at the link's measured speed from page-locked memory.
// - The optimizer state is Stowage's, 10 bytes for each bf16 parameter rather than 12, with gradients in the
//   work type, so every emulation trains a somewhat larger model in the same host memory.
// - Exact clipping by the global norm: no update begins before the whole backward pass has ended. The
//   originals are used that way too, though some may begin earlier without it.
// - Activations are treated as the systems' users set them: each Transformer block's input is kept and the
//   block rebuilt in backward (gradient checkpointing), or nothing is rebuilt if that fits and is faster.
// - Micro-batches go through each block together, so that its parameters come in, and are gathered, twice a
//   step at most. The originals run one micro-batch after another, and bring and gather parameters for each
//   micro-batch.
// - On one of several ranks, collectives are ops of the graph, as in every plan of Stowage. They move the
//   bytes of each rank's share, sum exactly and in a fixed order, and take the peer link's measured speed.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "offload/plan/schedule/candidate.h"

namespace stowage {

// Treatment of activations: blocks are rebuilt from inputs on the device, or from inputs on the host, or all
// activations are kept.
enum class Activations : std::uint8_t { checkpoint, checkpoint_on_host, keep };
std::string_view to_string(Activations activations);
// Treatment, after forward, of whole parameters gathered from all ranks' shares: they stay for backward, or
// are dropped and gathered again.
enum class Gathered : std::uint8_t { stay, again };
std::string_view to_string(Gathered gathered);

// Extra waits: a system has them, but its plan does not need them.
struct ExtraWaits {
  // The step's first op waits for all parameters that come from the host. Has an effect
  // only with Choices::held_all_step.
  bool for_loads = false;
  // A step computes nothing and brings nothing in before the last host update of the step before has ended.
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
  std::uint32_t distance = 0;  // transfers that may go ahead of their use; 0: each runs between two ops
};

// Problems of the graph in whole blocks, by bucket size. Keeps a reference to the machine, which must outlive
// it. Must outlive the PolicyMembers made of it, which point to its problems.
class PolicyProblems {
 public:
  // `bucket_bytes` 0: the size that the policy takes by itself.
  PolicyProblems(const Graph& graph, const Machine& machine, Bytes bucket_bytes, std::stop_token stop = {});

  const Machine& machine() const { return machine_; }
  const Graph& graph() const { return blocks_; }
  // Returns the bytes of one element of the largest parameter.
  Bytes element_bytes() const;
  // Returns the bytes of a rank's share of `elements` elements.
  Bytes share_bytes(Bytes elements) const;
  // Returns the bytes of the parameters of the block that has most; on several ranks, of the rank's share.
  Bytes block_parameter_bytes() const;
  // Returns the same problem for the same size.
  const Problem& with_buckets(Bytes target);
  // Returns the problem in which each parameter and each gradient has a bucket of its own, as is best if
  // everything is resident.
  const Problem& with_single_tensors();

 private:
  const Problem& with(const BucketOptions& options);
  const Machine& machine_;
  Bytes bucket_bytes_;
  std::stop_token stop_;
  Graph blocks_;
  std::vector<std::pair<BucketOptions, std::unique_ptr<Problem>>> problems_;
};

// Returns choices in which every parameter has the LoadChoice `parameters`, inputs are held, and activations
// and gathered parameters are treated as given. A gathered parameter that several blocks read (the token
// table) is treated as a block's input.
Choices policy_choices(const Problem& problem, Activations activations, LoadChoice parameters,
                       Gathered gathered = Gathered::again);

// Each of these functions adds the configurations of its system to `members`. Each has a file of its own,
// which names its source. docs/design.md, section 9, says what a new system needs.
void add_zero_offload(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_zero_infinity(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_gemini_cpu(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_layer_stream(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_checkpoint(PolicyProblems& problems, std::vector<PolicyMember>& members);
void add_fsdp2(PolicyProblems& problems, std::vector<PolicyMember>& members);

// Returns the configurations of one policy; none if it emulates no system.
std::vector<PolicyMember> policy_members(Policy policy, PolicyProblems& problems);
// Returns the configurations of all policies: each as it is, without its extra waits, and also without
// Choices::held_all_step. With them as candidates the automatic policy is never slower than an emulation.
std::vector<PolicyMember> all_policy_members(PolicyProblems& problems);

// These functions return the member's sketch, the step time in seconds below which no plan of the draft gets,
// and the member's plan. The plan has no lower bound yet (Plan::lower_bound_seconds).
Sketch policy_sketch(const PolicyMember& member);
double policy_least_seconds(const PolicyMember& member, const Draft& draft);
Plan policy_plan(const PolicyMember& member);

// Returns the plan of the fastest configuration that fits, or the smallest budget that some configuration
// needs. The plan has no lower bound yet.
std::variant<Plan, Infeasible> plan_policy(Policy policy, PolicyProblems& problems, const Budget& budget);
// Returns the smallest planned peak of the policy's configurations.
Bytes policy_minimum_bytes(Policy policy, PolicyProblems& problems);

}  // namespace stowage
