// Buckets pass: gives every tensor of the graph its bucket and its offset inside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

// The contents of a bucket, as far as the planner treats them differently.
enum class BucketRole : std::uint8_t {
  parameter,
  input,
  gradient,         // final gradients of one parameter bucket
  optimizer_state,  // the state of one parameter bucket
  // An alias group of values, their gradients, ungrouped gradients of parameters, or workspaces; or partial
  // sums of one gradient that take turns in the same bytes (byte_groups.h).
  activation,
  square_sums,  // the parts of the global gradient norm
  loss,
  clip,
};

// A bucket that an op touches.
struct BucketOperand {
  BucketId bucket = no_id;
  bool reads = false;
  bool writes = false;
};

struct BucketLayout {
  std::vector<Bucket> buckets;      // buckets whose residency is not yet decided
  std::vector<BucketRole> roles;    // role of each bucket
  std::vector<BucketId> bucket_of;  // bucket of each tensor
  // Indexed by bucket: for gradients and optimizer state, the bucket of their parameters; else no_id.
  std::vector<BucketId> parameters_of;
  std::vector<Bytes> state_bytes;    // by parameter bucket: bytes of its gradient and state buckets
  std::vector<BucketId> parameters;  // parameter buckets in first-use order
  // Indexed by bucket: the byte ranges of the slices, in order, if the bucket is a parameter that is cut or
  // its gradient; else empty. A parameter that is cut has a bucket of its own, and each of its slices has a
  // bucket of optimizer state.
  std::vector<std::vector<ByteRange>> slices;
  std::vector<std::uint32_t> slice_number;  // by tensor: a slice's number within its whole tensor; else 0
  Bytes target_bytes = 0;                   // BucketOptions::target_bytes
  // Returns the buckets that the op touches, each once.
  std::span<const BucketOperand> operands_of(OpId op) const {
    return {operands.data() + first_operand[op], first_operand[op + 1] - first_operand[op]};
  }
  std::vector<std::size_t> first_operand;  // first index in `operands`, by op, and the end
  std::vector<BucketOperand> operands;     // operands of all ops, one op after another
  std::vector<LaneRole> lanes;             // lane of each op (op_lanes)
  bool has_peers = false;                  // some op is on the peer lane
};

struct BucketOptions {
  // A parameter bucket is closed when it reaches this size. 0: each parameter has its own bucket.
  Bytes target_bytes = 0;
  // True: gradients share buckets as their parameters do. False: each gradient has its own bucket, with the
  // role of an activation. Separate buckets take less memory if no gradient goes to the host.
  bool group_gradients = true;
};

// Returns the size of the smallest transfer that reaches 95 % of the link's peak in both directions, within
// 64 KiB to 1 GiB.
Bytes efficient_bucket_bytes(const Machine& machine);

// Walks parameters in first-use order. A bucket is closed when it reaches its target size, or at the end of a
// unit when it has half of that. Tiny parameters (16 KiB or less, and together at most 1/64 of the largest
// op's operands) share one bucket; tiny parameters that are not trained share another. `groups`:
// byte_groups() of the graph. Throws InvalidInput if the graph has no loss or no clip op, if no op reads
// a parameter, or if no update applies a gradient to a parameter that is trained.
BucketLayout make_buckets(const Graph& graph, const std::vector<TensorId>& groups,
                          const BucketOptions& options);

// Returns, by op, the lane on which the op runs if it runs on the device. The peer lane runs collectives
// (launch_table.h) and backward ops that read nothing but the results of collectives, such as the sum of the
// received shares of a gradient, and its part of the norm. With these ops on the peer lane, no op of the
// compute lane waits until gradients are exchanged. The compute lane runs all other ops.
std::vector<LaneRole> op_lanes(const Graph& graph);

}  // namespace stowage
