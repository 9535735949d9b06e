// Buckets pass: gives every tensor of the graph its bucket and its offset inside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

// What a bucket holds, as far as the planner treats it differently.
enum class BucketRole : std::uint8_t {
  parameter,
  input,
  gradient,         // final gradients of one parameter bucket
  optimizer_state,  // of one parameter bucket
  // One alias group: values, their gradients, ungrouped gradients of parameters, workspaces; or partial sums
  // of one gradient (byte_groups.h).
  activation,
  square_sums,  // all parts of the global norm
  loss,
  clip,
};

// What an op reads or writes.
struct BucketOperand {
  BucketId bucket = no_id;
  bool reads = false;
  bool writes = false;
};

struct BucketLayout {
  std::vector<Bucket> buckets;      // residency not yet decided
  std::vector<BucketRole> roles;    // by bucket
  std::vector<BucketId> bucket_of;  // by tensor
  // By bucket: for a bucket of gradients or optimizer state, the bucket of their parameters; else no_id.
  std::vector<BucketId> parameters_of;
  std::vector<Bytes> state_bytes;    // by parameter bucket: bytes of its gradient and state buckets; else 0
  std::vector<BucketId> parameters;  // parameter buckets in first-use order
  // By bucket: of a parameter that is cut, and of its gradient, the bytes of its slices in order; else none.
  // Such a parameter has a bucket of its own, and one of optimizer state for each slice.
  std::vector<std::vector<ByteRange>> slices;
  std::vector<std::uint32_t> slice_number;  // by tensor: a slice's number within its whole; else 0
  Bytes target_bytes = 0;                   // BucketOptions::target_bytes
  // The buckets that the op touches, each once.
  std::span<const BucketOperand> operands_of(OpId op) const {
    return {operands.data() + first_operand[op], first_operand[op + 1] - first_operand[op]};
  }
  std::vector<std::size_t> first_operand;  // by op, and the end
  std::vector<BucketOperand> operands;     // op by op
  std::vector<LaneRole> lanes;             // by op (op_lanes)
  bool has_peers = false;                  // some op is on the peer lane
};

struct BucketOptions {
  // A parameter bucket is closed when it reaches this size; 0: one tensor each.
  Bytes target_bytes = 0;
  // True: gradients share buckets as their parameters do. False: each gradient has a bucket of its own, with
  // the role of an activation; this takes less memory where no gradient goes to the host.
  bool group_gradients = true;
};

// The smallest transfer that reaches 95 % of the link's peak in both directions; from 64 KiB to 1 GiB.
Bytes efficient_bucket_bytes(const Machine& machine);

// Walks parameters in first-use order. A bucket is closed when it reaches its target, or at a unit's end when
// it has half of it. Tiny parameters (16 KiB or less, and together at most 1/64 of the largest op's operands)
// share one bucket, and those that are not trained another. `groups`: by tensor, what shares its bytes
// (byte_groups in byte_groups.h). InvalidInput for a graph without a loss and an update phase, and for a
// parameter that no op reads, or that is trained and to which no update applies a gradient.
BucketLayout make_buckets(const Graph& graph, const std::vector<TensorId>& groups,
                          const BucketOptions& options);

// By op: on which lane it runs if it runs on the device. On the peer lane: collectives (launch_table.h), and
// what backward does with nothing but their results, such as the sum of the shares that came of a gradient,
// and its part of the norm. So no op of the compute lane waits until gradients are exchanged. All else is on
// the compute lane.
std::vector<LaneRole> op_lanes(const Graph& graph);

}  // namespace stowage
