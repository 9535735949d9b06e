// MachineFile: what was measured of one machine, when and where, as `stowage calibrate` writes it. A plan
// for that machine can then be made on another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/device.h"
#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

// One copy between pinned and device memory, its median time.
struct CopySample {
  Bytes bytes = 0;
  double seconds = 0;
};

// One direction of the link: what was measured, by size, and the latency and peak that explain it best.
struct CopyCurve {
  std::vector<CopySample> samples;
  Link fit;
};

// One product [rows, inner] x [inner, columns] by the `linear` kernel, its median time with the launch.
struct MatrixSample {
  std::int64_t rows = 0;
  std::int64_t inner = 0;
  std::int64_t columns = 0;
  double seconds = 0;
};

// Products of one work type. The rate is that of the largest set of shapes together, launches taken off.
struct MatrixRate {
  DataType type = DataType::f32;
  double flops_per_second = 0;
  std::vector<MatrixSample> samples;
};

// Ops of one kernel and cost (OpCost) in a training step of a small model, all of it on the device: their
// mean time, launch included, as they follow one another there.
struct OpSample {
  std::string kernel;
  DataType type = DataType::f32;  // work type of the model
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

// AdamW streaming through host memory, reads plus writes, on so many threads.
struct HostRate {
  int threads = 0;
  double bytes_per_second = 0;
};

// Bytes per second of a device's link, in each direction alone, and while as much goes the other way.
struct LinkRates {
  double h2d = 0;
  double d2h = 0;
  double h2d_both = 0;
  double d2h_both = 0;
};

// The devices of a machine that has several of one kind, which can train one model together.
struct PeerDevices {
  int devices = 1;                  // 1 to 64
  int devices_per_host_memory = 1;  // share a host memory (a socket's), whose rates the file has; at most all
  Link link;                        // what one device receives from the others, all of them together
  // The way from one to another. `host_memory`: none reads another's memory. A measurement tells the other
  // two apart, by whether gathers and copies slow each other; what host memory costs is then in `link`.
  PeerPath path = PeerPath::apart;
  // As measured: how long all devices take to gather, and to exchange, by the bytes that each of them
  // receives. Empty where nobody has measured it.
  std::vector<CopySample> gathers{}, exchanges{};
  std::optional<LinkRates> together{};  // measured: of each link while those of all devices do the same
};

struct MachineFile {
  std::string device;     // DeviceInfo::name, e.g. "NVIDIA H200"
  std::string backend;    // DeviceInfo::backend
  std::string host;       // the host's name
  std::string processor;  // the host's CPU
  std::string measured;   // UTC, e.g. "2026-11-21T13:50:00Z"
  std::string note;       // how: quick or full, and what else should be known

  Bytes device_bytes = 0;    // device memory in all; 0 where it has no limit of its own
  Bytes overhead_bytes = 0;  // of it, what context, libraries and workspaces took once products had run

  CopyCurve h2d;  // alone
  CopyCurve d2h;
  CopyCurve h2d_both;  // while as much goes the other way
  CopyCurve d2h_both;

  std::vector<MatrixRate> matrix;      // one per work type
  double device_bytes_per_second = 0;  // device memory, reads plus writes
  double launch_seconds = 0;           // one op in a row of tiny ones
  std::vector<HostRate> host_rates;    // by rising number of threads
  std::vector<OpSample> ops;           // empty: not measured
  // Shares of Machine, of a device that computes with the host's own cores; 1 of others.
  double compute_beside_copy = 1;
  double compute_beside_host = 1;
  double host_beside_compute = 1;
  // Host memory, by AdamW with the most threads and copies both ways together; 0: not measured.
  double host_total_bytes_per_second = 0;
  // Of each host memory, which PeerDevices::devices_per_host_memory devices share; without `peers`, of the
  // one that the device uses. As `host_rates`, calibrate measures it of the whole host, which is then one
  // memory to all devices. 0: not known. At most 32 PiB.
  Bytes host_memory_bytes = 0;
  std::optional<PeerDevices> peers;  // nothing: one device, or nothing known of others
};

// Versioned JSON, loss-free. `to_json` throws InvalidInput for a file that `machine_from_json` would refuse.
std::string to_json(const MachineFile& file);
// Treats its text as hostile: InvalidInput that names the field, never worse.
MachineFile machine_from_json(std::string_view text);

// Reads the file at `path`. Throws InvalidInput that names it.
MachineFile read_machine_file(const std::string& path);

// What the planner takes of it for a graph of work type `work`: each direction of the link alone and beside
// the other, and host memory with all threads. Host memory in all is what was measured of it together, but no
// less than what any one, or the copies of both directions, had of it. Where it was not measured, it is the
// best rate of the optimizer, which streams through host memory with all cores and so leaves none of it.
// Throws InvalidInput naming the types that were measured when `work` is none.
//
// With `devices` above 1: one of so many devices of the file that train one model together. All are alike:
// - They are taken evenly from the host memories: of 8 devices, 4 at each memory, two have a memory each. All
//   of them copy and update at the same time, so each has of host memory's rates (the optimizer's, and in
//   all) the part of one device where most share a memory.
// - Each has its link for itself, but no more of it than its part of host memory in all. Where the links were
//   measured together, each also has no more than its part of what all had so, and host memory in all is no
//   less than that.
// - Simulated devices compute with the same cores: each has its part of their rates.
// - `peer` is the file's. Through the host, a received byte takes host memory's rate twice, as it is written
//   there and as it is read, so `peer` has at most half of the device's part of host memory in all. (A byte
//   that all others gather is written only once, which is not counted.) `peer_path` is the file's: what
//   peers' bytes pass through they share with copies and updates.
// - The overhead is the file's and overhead_for_peers.
// Throws InvalidInput if the file has no peer link or fewer devices.
Machine machine_for(const MachineFile& file, DataType work, int devices = 1);

// The host budget of `devices` devices of the file that train one model together, of which each has an equal
// part. A sixteenth of each host memory is left to the system. The devices are taken evenly from the
// memories, as by machine_for, and the parts of those at one memory together are no more than what is left of
// it. All run one plan, so those at the memory with most of them decide for all: of 3 devices at two memories
// each has half of one. In calibrate's files the whole host is one memory: where it has several nodes,
// devices that are all at one of them may need bytes of another. `unlimited` where the file does not say what
// there is. Throws InvalidInput as machine_for does.
Bytes host_budget_for(const MachineFile& file, int devices = 1);

// Device memory of each of `devices` cards, 2 or more, for what they reach each other with: NCCL's buffers,
// and scratch of the peer lane. 512 MiB, a guess: it has not been measured on cards. 0 of one device, and of
// devices of a backend (DeviceInfo::backend) other than cuda.
Bytes overhead_for_peers(std::string_view backend, int devices);

// Gives every op of `graph` that has no time and no type of its own (OpCost) the time that the file's samples
// say: that of an op of its kernel and cost, or of those of its kernel that are near in flops and bytes, as
// they compare with the rates of `machine`, which is `machine_for(file, work, devices)` for a graph of one of
// so many. Ops of kernels that were not
// measured are left to the rates; without samples of `work` nothing changes.
void set_op_seconds(const MachineFile& file, DataType work, const Machine& machine, Graph& graph);

// Machine::overhead_bytes of a run on `device`, whose context and libraries may hold more now than the
// `measured` bytes. To what they hold come the last page of an arena, and 64 MiB for code that libraries
// load when an op first asks for it, and the card's page tables of `pinned` bytes of page-locked memory: 8
// bytes for each page of 4 KiB, in whole granules. 0 for a device without overhead.
Bytes overhead_on(const Device& device, Bytes measured, Bytes pinned);

// The most bytes that a plan for `graph` may page-lock: every tensor but workspaces, or all of the host
// budget.
Bytes most_pinned_bytes(const Graph& graph, Bytes host_budget);

// The type that most bytes of a graph's parameters have; f32 without any.
DataType work_type(const Graph& graph);

// Throws InvalidInput where an op computes in a type for which the file has no rate.
void require_rates(const MachineFile& file, const Graph& graph);

}  // namespace stowage
