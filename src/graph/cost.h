// Modelled time of one op on a machine: the one formula that the planner predicts with and that the
// engine gives to a device which runs in virtual time.
#pragma once

#include <algorithm>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/undo_record.h"

namespace stowage {

// True for the kernels that turn an array into codes and back, `encode` and `decode` (launch_table.h).
inline bool is_codec(const Op& op) { return op.kernel == "encode" || op.kernel == "decode"; }

// Bytes per second that an op reads and writes: at the rate of device memory, or of the codec. The codec's
// kernels refuse an op whose attribute `bits` is neither 4 nor 8.
inline double memory_rate(const Op& op, const Machine& machine) {
  if (!is_codec(op)) return machine.device_bytes_per_second;
  const auto bits = op.attributes.find("bits");
  const bool has_four = bits != op.attributes.end() && bits->second == Attribute(std::int64_t{4});
  const CodecRates rates = machine.codec(has_four ? CodeBits::four : CodeBits::eight);
  return op.kernel == "encode" ? rates.encode_bytes_per_second : rates.decode_bytes_per_second;
}

// Seconds of an op on the device by rates alone: the time of arithmetic, of device memory or of the link from
// the peers, whichever is longest, plus the launch.
inline double seconds_by_rates(const Op& op, const Machine& machine) {
  const double flops = op.cost.type ? machine.flops_of(*op.cost.type) : machine.flops_per_second;
  const double here = std::max(op.cost.flops / flops, op.cost.bytes / memory_rate(op, machine));
  const Link& link = machine.peer;
  const double peers =
      op.cost.peer_bytes == 0 ? 0 : link.latency_seconds + op.cost.peer_bytes / link.bytes_per_second;
  return std::max(here, peers) + machine.launch_seconds;
}

// Seconds of an op on the device: as measured, else by rates.
inline double op_seconds(const Op& op, const Machine& machine) {
  return op.cost.seconds ? *op.cost.seconds : seconds_by_rates(op, machine);
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
