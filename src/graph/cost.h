// Modelled time of one op on a machine: the one formula that the planner predicts with and that the
// engine gives to a device which runs in virtual time.
#pragma once

#include <algorithm>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/undo_record.h"

namespace stowage {

// Seconds of an op on the device: as measured; else the time of arithmetic, of device memory or of the link
// from the peers, whichever is longest, plus the launch.
inline double op_seconds(const Op& op, const Machine& machine) {
  if (op.cost.seconds) return *op.cost.seconds;
  const double flops = op.cost.type ? machine.flops_of(*op.cost.type) : machine.flops_per_second;
  const double here = std::max(op.cost.flops / flops, op.cost.bytes / machine.device_bytes_per_second);
  const Link& link = machine.peer;
  const double peers =
      op.cost.peer_bytes == 0 ? 0 : link.latency_seconds + op.cost.peer_bytes / link.bytes_per_second;
  return std::max(here, peers) + machine.launch_seconds;
}

// The part of op_seconds in which bytes come from the peers.
inline double peer_seconds(const Op& op, const Machine& machine) {
  return std::min(op_seconds(op, machine), op.cost.peer_bytes / machine.peer.bytes_per_second);
}

// Seconds on the host lane: update ops are bound by host memory.
inline double host_seconds(const Op& op, const Machine& machine) {
  return op.cost.bytes / machine.host_bytes_per_second;
}

// Bytes of the undo record of an update before the gate. 0 for an op that cannot be taken back.
inline Bytes undo_bytes(const Graph& graph, const Op& op) {
  if (op.phase != Phase::update || op.kernel != "adamw" || op.writes.empty()) return 0;
  const Tensor& parameter = graph.tensor(op.writes.front());
  const bool can_be_undone =
      parameter.type == DataType::f32 || parameter.type == DataType::bf16 || parameter.type == DataType::f16;
  if (!can_be_undone) return 0;
  const DataType moments = op.writes.size() > 1 ? graph.tensor(op.writes[1]).type : DataType::f32;
  if (moments == DataType::bf16 || moments == DataType::u8)
    return value_record_bytes(parameter.elements(), static_cast<std::int64_t>(size_of(moments)),
                              parameter.type == DataType::f16 ? 6 : 4);
  return undo_record_bytes(parameter.elements());
}
// Seconds of an update that writes its undo record, or that is undone from it and made again.
inline double undoable_seconds(const Graph& graph, const Op& op, const Machine& machine) {
  return (op.cost.bytes + static_cast<double>(undo_bytes(graph, op))) / machine.host_bytes_per_second;
}

}  // namespace stowage
