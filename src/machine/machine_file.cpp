#include "stowage/machine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "src/base/printable.h"
#include "src/machine/op_profile.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::uintmax_t largest_file = 1U << 24U;
// One part is left to the system and the program itself: 4 GiB of 64.
constexpr Bytes parts_of_host_memory = 16;
constexpr double times_through_host = 2;  // a peer's byte is written to host memory, and read

using Rates = std::vector<MatrixRate>;
Rates::const_iterator rate_of(const Rates& rates, DataType type) {
  return std::find_if(rates.begin(), rates.end(),
                      [type](const MatrixRate& rate) { return rate.type == type; });
}

// Returns the type whose measurements serve for `work`. Unmeasured f16 takes bf16 on a card, which multiplies
// both as fast, and f32 on a CPU, which widens f16.
DataType measured_type(const MachineFile& file, DataType work) {
  if (work != DataType::f16 || rate_of(file.matrix, work) != file.matrix.end()) return work;
  return file.backend == "cuda" ? DataType::bf16 : DataType::f32;
}

const MatrixRate& rate_for(const MachineFile& file, DataType work) {
  const auto found = rate_of(file.matrix, measured_type(file, work));
  if (found != file.matrix.end()) return *found;
  std::string measured;
  for (const MatrixRate& rate : file.matrix) {
    if (!measured.empty()) measured += ", ";
    measured += to_string(rate.type);
  }
  throw InvalidInput(
      fmt::format("the machine file of {} has no rate for {}, only for {}: use a model of such a type, or "
                  "measure again with stowage calibrate",
                  printable(file.device), to_string(work), measured.empty() ? "no type" : measured));
}

const CodecRate* codec_of(const MachineFile& file, DataType type, CodeBits bits) {
  const auto found = std::find_if(file.codec.begin(), file.codec.end(), [&](const CodecRate& rate) {
    return rate.type == type && rate.bits == bits;
  });
  return found == file.codec.end() ? nullptr : &*found;
}

// Unmeasured f16 takes bf16, whose elements have as many bytes and take as long, on a CPU too.
CodecRates codec_for(const MachineFile& file, DataType work, CodeBits bits) {
  const CodecRate* rate = codec_of(file, work, bits);
  if (rate == nullptr && work == DataType::f16) rate = codec_of(file, DataType::bf16, bits);
  return rate == nullptr ? CodecRates{} : rate->rates;
}

double fastest_host_rate(const MachineFile& file) {
  const auto most =
      std::max_element(file.host_rates.begin(), file.host_rates.end(),
                       [](const HostRate& a, const HostRate& b) { return a.threads < b.threads; });
  return most == file.host_rates.end() ? Machine{}.host_bytes_per_second : most->bytes_per_second;
}

double host_total(const MachineFile& file, const Machine& machine) {
  double best = file.host_total_bytes_per_second;
  if (best == 0)
    for (const HostRate& rate : file.host_rates) best = std::max(best, rate.bytes_per_second);
  const double in = machine.h2d.bytes_per_second, out = machine.d2h.bytes_per_second;
  const double both =
      std::min(in, machine.h2d_both_bytes_per_second) + std::min(out, machine.d2h_both_bytes_per_second);
  return std::max({best, machine.host_bytes_per_second, in, out, both});
}

// Returns the most devices at one host memory, if `devices` are taken evenly from all host memories.
int devices_at_one_memory(const PeerDevices& peers, int devices) {
  const int memories = (peers.devices + peers.devices_per_host_memory - 1) / peers.devices_per_host_memory;
  return (devices + memories - 1) / memories;
}

void require_devices(const MachineFile& file, int devices) {
  const std::string wanted = fmt::format("{} devices of the machine of {}", devices, printable(file.device));
  if (devices < 1) throw InvalidInput(fmt::format("{}: give at least 1", wanted));
  if (!file.peers)
    throw InvalidInput(
        fmt::format("{}: its file has no peer link (\"peers\"); plan for one device, or give a "
                    "machine with several, such as 4x-rtx4090",
                    wanted));
  if (devices > file.peers->devices)
    throw InvalidInput(fmt::format("{}: it has {}; give at most so many", wanted, file.peers->devices));
}

// Limits the links' rates to a device's part of their total, if links were measured together.
void share_links(const PeerDevices& peers, int devices, Machine& machine) {
  if (!peers.together) return;
  const LinkRates& each = *peers.together;
  const double parts = static_cast<double>(peers.devices) / devices;
  const auto at_most = [&](double& rate, double together) { rate = std::min(rate, parts * together); };
  at_most(machine.h2d.bytes_per_second, each.h2d);
  at_most(machine.d2h.bytes_per_second, each.d2h);
  at_most(machine.h2d_both_bytes_per_second, each.h2d_both);
  at_most(machine.d2h_both_bytes_per_second, each.d2h_both);
  const double most = std::max({each.h2d, each.d2h, each.h2d_both + each.d2h_both});
  machine.host_total_bytes_per_second =
      std::max(machine.host_total_bytes_per_second, peers.devices_per_host_memory * most);
}

// Reduces the host's rates to one device's part among several, as the header says.
void share_host(const PeerDevices& peers, int devices, Machine& machine) {
  const double sharing = devices_at_one_memory(peers, devices);
  machine.host_bytes_per_second /= sharing;
  machine.host_total_bytes_per_second /= sharing;
  const double most = machine.host_total_bytes_per_second;
  for (double* rate : {&machine.h2d.bytes_per_second, &machine.d2h.bytes_per_second,
                       &machine.h2d_both_bytes_per_second, &machine.d2h_both_bytes_per_second})
    *rate = std::min(*rate, most);
  machine.peer = peers.link;
  machine.peer_path = peers.path;
  if (peers.path == PeerPath::host_memory)
    machine.peer.bytes_per_second = std::min(machine.peer.bytes_per_second, most / times_through_host);
}

void share_cores(const MachineFile& file, int devices, Machine& machine) {
  if (file.backend != "simulated") return;
  machine.flops_per_second /= devices;
  for (double& rate : machine.flops_by_type) rate /= devices;
  machine.device_bytes_per_second /= devices;
  machine.codec_4_bits /= devices;
  machine.codec_8_bits /= devices;
}

}  // namespace

Machine machine_for(const MachineFile& file, DataType work, int devices) {
  if (devices != 1) require_devices(file, devices);
  Machine machine;
  machine.h2d = file.h2d.fit;
  machine.d2h = file.d2h.fit;
  machine.flops_per_second = rate_for(file, work).flops_per_second;
  for (std::size_t type = 0; type < data_type_count; ++type)
    if (const auto rate = rate_of(file.matrix, measured_type(file, static_cast<DataType>(type)));
        rate != file.matrix.end())
      machine.flops_by_type[type] = rate->flops_per_second;
  machine.device_bytes_per_second = file.device_bytes_per_second;
  machine.codec_4_bits = codec_for(file, work, CodeBits::four);
  machine.codec_8_bits = codec_for(file, work, CodeBits::eight);
  machine.launch_seconds = file.launch_seconds;
  machine.host_bytes_per_second = fastest_host_rate(file);
  machine.h2d_both_bytes_per_second = file.h2d_both.fit.bytes_per_second;
  machine.d2h_both_bytes_per_second = file.d2h_both.fit.bytes_per_second;
  machine.host_total_bytes_per_second = host_total(file, machine);
  machine.overhead_bytes = file.overhead_bytes;
  machine.compute_beside_copy = file.compute_beside_copy;
  machine.compute_beside_host = file.compute_beside_host;
  machine.host_beside_compute = file.host_beside_compute;
  if (devices > 1) {
    share_links(*file.peers, devices, machine);
    share_host(*file.peers, devices, machine);
    share_cores(file, devices, machine);
  }
  machine.overhead_bytes += overhead_for_peers(file.backend, devices);
  return machine;
}

Bytes host_budget_for(const MachineFile& file, int devices) {
  if (devices != 1) require_devices(file, devices);
  if (file.host_memory_bytes == 0) return unlimited;
  const Bytes left = file.host_memory_bytes - file.host_memory_bytes / parts_of_host_memory;
  if (devices == 1) return left;
  const Bytes each = left / static_cast<Bytes>(devices_at_one_memory(*file.peers, devices));
  return each * static_cast<Bytes>(devices);
}

Bytes overhead_for_peers(std::string_view backend, int devices) {
  return devices > 1 && backend == "cuda" ? 512_MiB : 0;
}

void set_op_seconds(const MachineFile& file, DataType work, const Machine& machine, Graph& graph) {
  const OpProfile profile = profile_of(file, measured_type(file, work), static_cast<int>(graph.share.ranks));
  if (!profile.empty()) set_seconds(profile, machine, graph);
}

Bytes overhead_on(const Device& device, Bytes measured, Bytes pinned) {
  constexpr Bytes code_to_come = 64_MiB;
  constexpr Bytes pinned_per_table_byte = 512;  // an entry of 8 bytes maps 4 KiB
  const Bytes held = device.memory_info().overhead;
  if (held == 0 && device.info().backend != "cuda") return 0;
  const Bytes granule = device.granularity();
  return std::max(measured, held) + granule + code_to_come +
         align_up((pinned + pinned_per_table_byte - 1) / pinned_per_table_byte, granule);
}

Bytes most_pinned_bytes(const Graph& graph, Bytes host_budget) {
  Bytes bytes = 0;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind != TensorKind::workspace && tensor.kind != TensorKind::slice) bytes += tensor.bytes();
  return std::min(bytes, host_budget);
}

DataType work_type(const Graph& graph) {
  std::array<Bytes, data_type_count> bytes{};
  for (const Tensor& tensor : graph.tensors) {
    const bool is_floating =
        tensor.type == DataType::f32 || tensor.type == DataType::f64 || size_of(tensor.type) == 2;
    if (tensor.kind == TensorKind::parameter && is_floating && tensor.type != DataType::i16)
      bytes[static_cast<std::size_t>(tensor.type)] += tensor.bytes();
  }
  return static_cast<DataType>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

void require_rates(const MachineFile& file, const Graph& graph) {
  for (const Op& op : graph.ops)
    if (op.cost.type && op.cost.flops > 0) rate_for(file, *op.cost.type);
}

MachineFile read_machine_file(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  const char* remedy = "give a file that stowage calibrate wrote";
  if (error) throw InvalidInput(fmt::format("cannot read '{}': {}; {}", path, error.message(), remedy));
  if (size > largest_file) throw InvalidInput(fmt::format("'{}' is larger than 16 MiB; {}", path, remedy));
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open())
    throw InvalidInput(fmt::format("cannot read '{}': {}; {}", path, std::strerror(errno), remedy));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw InvalidInput(fmt::format("cannot read '{}'; {}", path, remedy));
  try {
    return machine_from_json(text);
  } catch (const InvalidInput& refused) {
    throw InvalidInput(fmt::format("'{}': {}", path, refused.what()));
  }
}

}  // namespace stowage
