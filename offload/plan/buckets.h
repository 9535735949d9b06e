// Buckets pass: every tensor of the graph gets its bucket and its offset inside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

// What the bucket is to the planner.
enum class BucketRole : std::uint8_t {
  parameter,
  input,
  gradient,         // final gradients of one parameter bucket
  optimizer_state,  // of one parameter bucket
  activation,       // one alias group: values, their gradients, parts of gradients, workspaces
  square_sums,      // all parts of the global norm
  loss,
  clip,
};

// What an op reads or writes.
struct BucketOperand {
  BucketId bucket = no_id;
  bool writes = false;
};

struct BucketLayout {
  std::vector<Bucket> buckets;      // residency not yet decided
  std::vector<BucketRole> roles;    // by bucket
  std::vector<BucketId> bucket_of;  // by tensor
  // By bucket: of gradients and optimizer state, the bucket of their parameters; no_id for others.
  std::vector<BucketId> parameters_of;
  std::vector<Bytes> state_bytes;    // by bucket: of gradients and optimizer state of parameters in it
  std::vector<BucketId> parameters;  // parameter buckets in first-use order
  // By bucket: of a parameter that is cut, and of its gradient, the bytes of its slices in order; else none.
  // Such a parameter has a bucket of its own, and one of optimizer state for each slice.
  std::vector<std::vector<ByteRange>> slices;
  std::vector<std::uint32_t> slice_number;  // by tensor: of a slice, which of its whole's; else 0
  Bytes target_bytes = 0;
  // Each op's operands, each of its buckets once.
  std::span<const BucketOperand> operands_of(OpId op) const {
    return {operands.data() + first_operand[op], first_operand[op + 1] - first_operand[op]};
  }
  std::vector<std::size_t> first_operand;  // by op, and the end
  std::vector<BucketOperand> operands;     // op by op
};

struct BucketOptions {
  // A parameter bucket is closed when it reaches this size; 0: one tensor each.
  Bytes target_bytes = 0;
  // Gradients are in buckets as their parameters are; otherwise each is one of its own, which takes less
  // memory where none of them goes to the host.
  bool group_gradients = true;
};

// The smallest transfer that reaches 95% of the peak of the slower direction.
Bytes efficient_bucket_bytes(const Machine& machine);

// Walks parameters in first-use order. Tiny parameters (16 KiB or less, and together at most 1/64
// of the largest op's operands) share one bucket. A bucket is also closed at a unit's end when it
// has half its target. Needs a graph with an update phase; InvalidInput otherwise.
BucketLayout make_buckets(const Graph& graph, const std::vector<TensorId>& groups,
                          const BucketOptions& options);

}  // namespace stowage
