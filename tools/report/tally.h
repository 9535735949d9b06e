// Counts, by place and kind, of the tensors and buckets of a plan.
#pragma once

#include <cstdint>
#include <string>

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage {

struct Tally {
  std::uint64_t count = 0;
  Bytes bytes = 0;
};
struct PlanTally {
  Tally resident, held, streamed;          // buckets of parameters
  Tally optimizer_host, optimizer_device;  // buckets of optimizer state
  Tally kept, recomputed, offloaded;       // tensors that backward needs from forward
  Tally speculated;                        // updates before the gate, with the bytes of their undo records
  std::uint64_t host_updates = 0;          // number of updates on the host
  std::uint64_t in_backward = 0;           // number of host updates made before the gate, for good
  Bytes ring = 0;                          // bytes of the gradient ring
};
PlanTally tally(const Graph& graph, const Plan& plan);

// Host memory of a plan by what it holds. An engine allocates these bytes for the plan's buckets and records.
struct HostTally {
  Bytes weights = 0;  // parameters, and the state that makes master weights of them
  Bytes moments = 0, gradients = 0, undo = 0, inputs = 0;
  Bytes activations = 0;  // activations and the parts of the norm
  Bytes total() const { return weights + moments + gradients + undo + activations + inputs; }
};
HostTally host_tally(const Graph& graph, const Plan& plan);
// Returns a text such as "14.02 bytes a parameter: weights 4.00, moments 8.00, gradients 2.00, undo records
// 0.00, activations 0.02, inputs 0.00"
std::string host_text(const HostTally& tally, std::uint64_t parameters);

// Bytes of host memory that one step reads and writes, if it is not clipped. A copied byte counts once, as in
// Machine::host_total_bytes_per_second.
struct HostTraffic {
  Bytes updates = 0;      // updates on the host with their undo records, and the clip op
  Bytes in = 0, out = 0;  // copies to the device, and from it
  Bytes peers = 0;        // bytes from other devices, each written and read, if their path is host memory
  Bytes total() const { return updates + in + out + peers; }
};
HostTraffic host_traffic(const Graph& graph, const Plan& plan, PeerPath path);
// Returns a text such as "145.9 GB by updates, 22.9 GB in, 12.7 GB out".
std::string text(const HostTraffic& traffic);

// Returns a text such as "3 of 4 on the host begin before the gate; undo records 12.50 MiB", "3 of 4 on the
// host are made in backward, for good; their gradients take turns in 12.50 MiB", or "4 on the host".
std::string updates_text(const PlanTally& tally);

// Returns count and bytes, such as "4 (12.50 MiB)".
std::string text(const Tally& tally);

// Elements of all parameters; on one of several ranks, elements of the whole parameters that it gathers.
struct ParameterCount {
  std::uint64_t all = 0, trained = 0;
};
ParameterCount parameter_count(const Graph& graph);

// Returns the bytes that a rank receives from the others in one step, repeated gathers included; 0
// without others.
Bytes peer_bytes(const Graph& graph, const Plan& plan);

// Returns "4 micro-batches in 2 gradient groups", or "4 micro-batches" for one group.
std::string micro_batches_text(const Graph& graph);
// Returns a text such as "4 micro-batches, each half-block for all of them (layer_major)".
std::string micro_batches_text(const Graph& graph, MicroBatchOrder order);

}  // namespace stowage
