#include "tools/report/tally.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/graph/cost.h"

namespace stowage {
namespace {

void add_to(Tally& tally, Bytes bytes) {
  ++tally.count;
  tally.bytes += bytes;
}

// Returns the activations that a forward op writes and a backward op reads.
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

// Returns the bytes of a bucket of optimizer state that make master weights; the others are moments.
Bytes master_bytes(const Graph& graph, const Bucket& bucket) {
  Bytes bytes = 0;
  for (const BucketTensor& place : bucket.tensors) {
    const Tensor& tensor = graph.tensor(place.tensor);
    if (tensor.name.find(".adam_") == std::string::npos) bytes += tensor.bytes();
  }
  return bytes;
}

void add_to(HostTally& tally, const Graph& graph, const Bucket& bucket) {
  switch (bucket.kind) {
    case TensorKind::parameter:
      tally.weights += bucket.bytes;
      return;
    case TensorKind::optimizer_state:
      tally.weights += master_bytes(graph, bucket);
      tally.moments += bucket.bytes - master_bytes(graph, bucket);
      return;
    case TensorKind::gradient:
      tally.gradients += bucket.bytes;
      return;
    case TensorKind::activation:
      tally.activations += bucket.bytes;
      return;
    default:
      tally.inputs += bucket.bytes;
  }
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
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.kind == InstructionKind::speculate) add_to(result.speculated, instruction.part.bytes());
    if (instruction.kind != InstructionKind::commit || !runs_on_host(instruction)) continue;
    ++result.host_updates;
    result.in_backward += id < plan.gate;
  }
  result.ring = plan.ring_bytes;
  return result;
}

HostTally host_tally(const Graph& graph, const Plan& plan) {
  HostTally result;
  result.undo = plan.undo_bytes;
  result.gradients = plan.ring_bytes;
  for (const Bucket& bucket : plan.buckets)
    if (bucket.on_host() && !bucket.in_ring()) add_to(result, graph, bucket);
  return result;
}

HostTraffic host_traffic(const Graph& graph, const Plan& plan, PeerPath path) {
  HostTraffic result{0, plan.h2d_bytes, plan.d2h_bytes,
                     path == PeerPath::host_memory ? 2 * peer_bytes(graph, plan) : 0};
  const std::vector<InstructionId> early = speculations(plan, graph.ops.size());
  double updates = 0;
  for (const Instruction& instruction : plan.instructions) {
    if (!runs_on_host(instruction)) continue;
    const Op& op = graph.op(instruction.op);
    if (instruction.kind == InstructionKind::speculate)
      updates += op.cost.bytes + static_cast<double>(undo_bytes(graph, op));
    else if (early[instruction.op] == no_id)
      updates += op.cost.bytes;
  }
  result.updates = static_cast<Bytes>(updates);
  return result;
}

std::string text(const HostTraffic& traffic) {
  const auto gigabytes = [](Bytes bytes) {
    return fmt::format("{:.1f} GB", 1e-9 * static_cast<double>(bytes));
  };
  const std::string peers =
      traffic.peers > 0 ? fmt::format(", {} from the other devices", gigabytes(traffic.peers)) : "";
  return fmt::format("{} by updates, {} in, {} out{}", gigabytes(traffic.updates), gigabytes(traffic.in),
                     gigabytes(traffic.out), peers);
}

std::string host_text(const HostTally& tally, std::uint64_t parameters) {
  const auto each = [&](Bytes bytes) {
    return static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(parameters, 1));
  };
  return fmt::format(
      "{:.2f} bytes a parameter: weights {:.2f}, moments {:.2f}, gradients {:.2f}, undo records {:.2f}, "
      "activations {:.2f}, inputs {:.2f}",
      each(tally.total()), each(tally.weights), each(tally.moments), each(tally.gradients), each(tally.undo),
      each(tally.activations), each(tally.inputs));
}

std::string updates_text(const PlanTally& tally) {
  if (tally.in_backward > 0)
    return fmt::format("{} of {} on the host are made in backward, for good{}", tally.in_backward,
                       tally.host_updates,
                       tally.ring > 0 ? "; their gradients take turns in " + format_bytes(tally.ring) : "");
  if (tally.speculated.count == 0) return fmt::format("{} on the host", tally.host_updates);
  return fmt::format("{} of {} on the host begin before the gate; undo records {}", tally.speculated.count,
                     tally.host_updates, format_bytes(tally.speculated.bytes));
}

std::string text(const Tally& tally) {
  return fmt::format("{} ({})", tally.count, format_bytes(tally.bytes));
}

ParameterCount parameter_count(const Graph& graph) {
  ParameterCount count;
  const auto add = [&](TensorId parameter, TensorId whole) {
    const auto elements = static_cast<std::uint64_t>(graph.tensor(whole).elements());
    count.all += elements;
    if (graph.is_trained(parameter)) count.trained += elements;
  };
  if (graph.share.ranks > 1) {
    for (const Op& op : graph.ops)
      if (op.kernel == "gather" && graph.kind_of(op.reads.front()) == TensorKind::parameter)
        add(op.reads.front(), op.writes.front());
    return count;
  }
  for (TensorId id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensor(id).kind == TensorKind::parameter) add(id, id);
  return count;
}

Bytes peer_bytes(const Graph& graph, const Plan& plan) {
  double bytes = 0;
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::launch || instruction.kind == InstructionKind::recompute)
      bytes += graph.op(instruction.op).cost.peer_bytes;
  return static_cast<Bytes>(bytes);
}

std::string micro_batches_text(const Graph& graph) {
  const std::string groups =
      graph.gradient_groups > 1 ? fmt::format(" in {} gradient groups", graph.gradient_groups) : "";
  return fmt::format("{} micro-batches{}", graph.micro_batches, groups);
}

std::string micro_batches_text(const Graph& graph, MicroBatchOrder order) {
  std::string in_words =
      order.is_layer_major ? "each half-block for all of them"
      : order.forwards == 1
          ? "one after another, forward and backward"
          : fmt::format("{} of them forward, then one backward and one forward in turn", order.forwards);
  if (!order.is_layer_major && !graph.range_begins.empty()) in_words += ", in the last range";
  return fmt::format("{}, {} ({})", micro_batches_text(graph), in_words, to_string(order));
}

}  // namespace stowage
