// MachineFile: the measurements of one machine, with time and place, as `stowage calibrate` writes them. A
// plan for that machine can then be made on another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/codec.h"
#include "stowage/device.h"
#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

// A copy between pinned and device memory, with its median time.
struct CopySample {
  Bytes bytes = 0;
  double seconds = 0;
};

// A direction of the link: measurements by size, and the latency and peak that fit them best.
struct CopyCurve {
  std::vector<CopySample> samples;
  Link fit;
};

// A product [rows, inner] x [inner, columns] by the `linear` kernel, with its median time, launch included.
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

// Rates of codes of so many bits, of arrays of one type, launches taken off.
struct CodecRate {
  DataType type = DataType::f32;  // f32, bf16 or f16
  CodeBits bits = CodeBits::four;
  CodecRates rates{};  // both above 0
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
  int devices_per_host_memory = 1;  // devices that share a host memory (a socket's), which the rates are of
  Link link;                        // link over which a device receives from all others together
  // The way from one device to another. `host_memory`: no device reads another's memory. A measurement tells
  // the other two apart, by whether gathers and copies slow each other; the cost of host memory is then in
  // `link`.
  PeerPath path = PeerPath::apart;
  // Measured times of a gather and an exchange by all devices, by the bytes that each device receives. Empty
  // if not measured.
  std::vector<CopySample> gathers{}, exchanges{};
  std::optional<LinkRates> together{};  // rates of a device's link while all devices' links are as busy
};

struct MachineFile {
  std::string device;     // DeviceInfo::name, e.g. "NVIDIA H200"
  std::string backend;    // DeviceInfo::backend
  std::string host;       // the host's name
  std::string processor;  // the host's CPU
  std::string measured;   // UTC, e.g. "2026-11-21T13:50:00Z"
  std::string note;       // how it was measured (quick or full), and remarks

  Bytes device_bytes = 0;  // device memory in all; 0 where it has no limit of its own
  // Device memory that context, libraries and workspaces held after products had run.
  Bytes overhead_bytes = 0;

  CopyCurve h2d;  // alone
  CopyCurve d2h;
  CopyCurve h2d_both;  // h2d copies while as many bytes go the other way
  CopyCurve d2h_both;

  std::vector<MatrixRate> matrix;      // one rate per work type
  std::vector<CodecRate> codec;        // at most one for each type and bits; empty: not measured
  double device_bytes_per_second = 0;  // device memory, reads plus writes
  double launch_seconds = 0;           // duration of one op in a row of tiny ops
  std::vector<HostRate> host_rates;    // rates by rising number of threads
  std::vector<OpSample> ops;           // empty: not measured
  // As in Machine, for a device that computes with the host's own cores; 1 for others.
  double compute_beside_copy = 1;
  double compute_beside_host = 1;
  double host_beside_compute = 1;
  // Host memory, by AdamW with the most threads and copies both ways together; 0: not measured.
  double host_total_bytes_per_second = 0;
  // Bytes of each host memory, which PeerDevices::devices_per_host_memory devices share; without `peers`, of
  // the host memory that the device uses. Like `host_rates`, calibrate measures it for the whole host, which
  // is then one memory to all devices. 0: not known. At most 32 PiB.
  Bytes host_memory_bytes = 0;
  std::optional<PeerDevices> peers;  // not set: a single device, or others are not known
};

// Versioned JSON, loss-free. `to_json` throws InvalidInput for a file that `machine_from_json` would refuse.
std::string to_json(const MachineFile& file);
// Treats its text as hostile: InvalidInput that names the field, never worse.
MachineFile machine_from_json(std::string_view text);

// Reads the file at `path`. Throws InvalidInput that names it.
MachineFile read_machine_file(const std::string& path);

// Returns the planner's rates for a graph of work type `work`: each direction of the link alone and beside
// the other, and host memory with all threads. Host memory in all is max(measured together, each user alone,
// both copy directions). If it was not measured, it is the best rate of the optimizer, which streams through
// host memory with all cores and so leaves none of it. Throws InvalidInput that names the measured types if
// `work` is none of them. Rates of the codec that were not measured are 0, but f16 takes those of bf16.
//
// `devices` above 1: returns one of so many devices of the file that train one model together. They are all
// alike:
// - Devices are taken evenly from the host memories: with 4 of 8 devices at each memory, two devices have a
//   memory each. They copy and update at the same time, so a device has its part of host memory's rates (the
//   optimizer's, and in all) at the memory that most devices share.
// - A device has a link of its own, but no more of it than its part of host memory in all. If the links were
//   measured together, it also has no more than its part of their sum, and host memory in all is no less than
//   that sum.
// - Simulated devices compute with the same cores: each device has its part of their rates.
// - `peer` is the file's. Through the host, a received byte takes host memory's rate twice, as it is written
//   there and as it is read, so `peer` has at most half of the device's part of host memory in all. (A byte
//   that all others gather is written only once, which is not counted.) `peer_path` is the file's: peers'
//   bytes share its parts with copies and updates.
// - The overhead is the file's and overhead_for_peers.
// Throws InvalidInput if the file has no peer link or fewer devices.
Machine machine_for(const MachineFile& file, DataType work, int devices = 1);

// Returns the host budget of `devices` devices of the file that train one model together; each has an equal
// part. A sixteenth of each host memory is left to the system. Devices are taken evenly from the memories, as
// by machine_for, and the parts of those at one memory fit together into what is left of it. All devices run
// one plan, so the memory with most devices decides for all: of 3 devices at two memories each has half of
// one memory. Calibrate's files call the whole host one memory: on a host of several nodes, devices that are
// all at one node may need bytes of another. Returns `unlimited` if the file does not say the host's memory.
// Throws InvalidInput as machine_for does.
Bytes host_budget_for(const MachineFile& file, int devices = 1);

// Returns the device memory that each of `devices` cards, 2 or more, needs to reach the others: NCCL's
// buffers, and scratch of the peer lane. 512 MiB, a guess: it has not been measured on cards. 0 for one
// device, and for a backend (DeviceInfo::backend) other than cuda.
Bytes overhead_for_peers(std::string_view backend, int devices);

// Gives ops of `graph` that have no time and no type of their own (OpCost) a time by the file's samples: the
// time of a sample of the same kernel and cost, or of the kernel's samples that are near in flops and bytes,
// scaled by the rates of `machine`. `machine` is `machine_for(file, work, devices)` for the graph of one of
// so many devices. Ops of kernels that were not measured are left to the rates; without samples of `work`
// nothing changes.
void set_op_seconds(const MachineFile& file, DataType work, const Machine& machine, Graph& graph);

// Returns Machine::overhead_bytes of a run on `device`, whose context and libraries may hold more now than
// the `measured` bytes. Adds: the last page of an arena, 64 MiB for code that libraries load when an op first
// asks for it, and the card's page tables of `pinned` bytes of page-locked memory (8 bytes for each page of 4
// KiB, in whole granules). 0 for a device without overhead.
Bytes overhead_on(const Device& device, Bytes measured, Bytes pinned);

// Returns the most bytes that a plan for `graph` may page-lock: every tensor but workspaces, or all of the
// host budget.
Bytes most_pinned_bytes(const Graph& graph, Bytes host_budget);

// Returns the type of most bytes of a graph's parameters; f32 without parameters.
DataType work_type(const Graph& graph);

// Throws InvalidInput if an op computes in a type for which the file has no rate.
void require_rates(const MachineFile& file, const Graph& graph);

}  // namespace stowage
