#include "tools/report/tally.h"

#include <fmt/format.h>

#include <vector>

namespace stowage {
namespace {

void add_to(Tally& tally, Bytes bytes) {
  ++tally.count;
  tally.bytes += bytes;
}

// Activations that a forward op writes and a backward op reads.
std::vector<bool> saved_for_backward(const Graph& graph) {
  std::vector<bool> forward(graph.tensors.size(), false);
  std::vector<bool> saved(graph.tensors.size(), false);
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward) {
      for (const TensorId id : op.writes) forward[id] = graph.tensor(id).kind == TensorKind::activation;
    } else if (op.phase == Phase::backward) {
      for (const TensorId id : op.reads) saved[id] = saved[id] || forward[id];
    }
  }
  return saved;
}

}  // namespace

PlanTally tally(const Graph& graph, const Plan& plan) {
  PlanTally result;
  const std::vector<bool> saved = saved_for_backward(graph);
  for (const Bucket& bucket : plan.buckets) {
    if (bucket.kind == TensorKind::parameter) {
      add_to(bucket.residency == Residency::resident ? result.resident
             : bucket.residency == Residency::held   ? result.held
                                                     : result.streamed,
             bucket.bytes);
    } else if (bucket.kind == TensorKind::optimizer_state) {
      add_to(bucket.residency == Residency::host ? result.optimizer_host : result.optimizer_device,
             bucket.bytes);
    }
    for (const BucketTensor& place : bucket.tensors) {
      if (!saved[place.tensor]) continue;
      add_to(bucket.residency == Residency::recomputed  ? result.recomputed
             : bucket.residency == Residency::offloaded ? result.offloaded
                                                        : result.kept,
             graph.tensor(place.tensor).bytes());
    }
  }
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind == InstructionKind::speculate) add_to(result.speculated, instruction.part.bytes());
    if (instruction.kind == InstructionKind::commit && runs_on_host(instruction)) ++result.host_updates;
  }
  return result;
}

std::string updates_text(const PlanTally& tally) {
  if (tally.speculated.count == 0) return fmt::format("{} on the host", tally.host_updates);
  return fmt::format("{} of {} on the host begin before the gate; undo records {}", tally.speculated.count,
                     tally.host_updates, format_bytes(tally.speculated.bytes));
}

std::string text(const Tally& tally) {
  return fmt::format("{} ({})", tally.count, format_bytes(tally.bytes));
}

std::uint64_t parameter_count(const Graph& graph) {
  std::uint64_t count = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) count += static_cast<std::uint64_t>(tensor.elements());
  }
  return count;
}

std::string micro_batches_text(std::uint32_t count, MicroBatchOrder order) {
  return fmt::format("{} micro-batches, {} ({})", count,
                     order == MicroBatchOrder::layer_major ? "each half-block for all of them"
                                                           : "one after another, forward and backward",
                     to_string(order));
}

}  // namespace stowage
