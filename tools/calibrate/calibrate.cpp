#include "tools/calibrate/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>

#include "src/device/host_limits.h"
#include "src/device/topology.h"
#include "stowage/cuda_device.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Returns "model name : …" of the first CPU, if the system tells it.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

// Returns the memory of all nodes, at most what the process's control groups allow; 0 if the system does not
// tell, or if there may be more later.
Bytes host_memory() {
  try {
    const Bytes seen = read_topology().memory();
    const Bytes allowed = group_memory_limit().value_or(unlimited);
    return allowed > seen && memory_may_grow(seen) ? 0 : std::min(seen, allowed);
  } catch (const DeviceError&) {
    return 0;
  }
}

std::string now_in_utc() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// Libraries load their code for attention when it is first asked for; it belongs to the overhead.
void load_attention(const OpProbeContext& context, DataType type) {
  constexpr std::int64_t tokens = 256, width = 128, heads = 2, sequence = 128;
  const auto narrow = [&](std::int64_t columns) { return probe_tensor(type, {tokens, columns}); };
  const Tensor log_sum_exp =
      probe_tensor(size_of(type) == 2 ? DataType::f32 : type, {tokens / sequence, heads, sequence});
  Op op;
  op.attributes = {{"heads", heads},
                   {"sequence", sequence},
                   {"causal", std::int64_t{1}},
                   {"dropout", 0.0},
                   {"key", std::int64_t{0}}};
  op.name = op.kernel = "attention";
  OpProbe(context, op, {narrow(3 * width)}, {narrow(width), log_sum_exp}).launch();
  op.name = op.kernel = "attention_backward";
  const Tensor workspace = probe_tensor(DataType::i32, {std::int64_t{1} << 20U});
  OpProbe(context, op, {narrow(3 * width), narrow(width), log_sum_exp, narrow(width)},
          {narrow(3 * width), workspace})
      .launch();
  context.device.synchronise_lane(context.lane);
}

// Elements of an update that no cache holds: hosts of cards have caches of some hundred MiB.
constexpr std::int64_t beyond_caches = std::int64_t{64} << 20U;

// A larger measurement with less than this share of a smaller one's rate is suspect.
constexpr double least_share = 0.5;

struct Measured {
  std::string what;  // size as the sentence names it, such as "16.00 MiB"
  double rate = 0;   // rate per second
};

// Returns whether the second of two measurements is at least as large in every dimension.
using IsLarger = std::function<bool(std::size_t, std::size_t)>;

void add_worst(const std::string& curve, const std::vector<Measured>& all, double unit, const char* unit_name,
               const IsLarger& is_larger, std::vector<std::string>& found) {
  const Measured* fast = nullptr;
  const Measured* slow = nullptr;
  double least = least_share;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!is_larger(i, k) || all[k].rate >= least * all[i].rate) continue;
      least = all[k].rate / all[i].rate;
      fast = &all[i];
      slow = &all[k];
    }
  }
  if (fast == nullptr) return;
  found.push_back(fmt::format("{}: {} at {:.1f} {}, but {} at {:.1f}", curve, fast->what, fast->rate / unit,
                              unit_name, slow->what, slow->rate / unit));
}

void add_copies(const std::string& curve, const std::vector<CopySample>& samples,
                std::vector<std::string>& found) {
  std::vector<Measured> all;
  for (const CopySample& sample : samples)
    all.push_back({format_bytes(sample.bytes), static_cast<double>(sample.bytes) / sample.seconds});
  add_worst(
      curve, all, 1e9, "GB/s",
      [&](std::size_t small, std::size_t large) { return samples[small].bytes < samples[large].bytes; },
      found);
}

void add_products(const MatrixRate& rate, std::vector<std::string>& found) {
  std::vector<Measured> all;
  for (const MatrixSample& sample : rate.samples) {
    all.push_back({fmt::format("{} x {} x {}", sample.rows, sample.inner, sample.columns),
                   flops_of(sample) / sample.seconds});
  }
  add_worst(
      fmt::format("{} products", to_string(rate.type)), all, 1e9, "GFLOP/s",
      [&](std::size_t small, std::size_t large) {
        const MatrixSample &a = rate.samples[small], &b = rate.samples[large];
        return a.rows <= b.rows && a.inner <= b.inner && a.columns <= b.columns;
      },
      found);
}

void add_threads(const std::vector<HostRate>& rates, std::vector<std::string>& found) {
  std::vector<Measured> all;
  for (const HostRate& rate : rates)
    all.push_back(
        {fmt::format("{} thread{}", rate.threads, rate.threads == 1 ? "" : "s"), rate.bytes_per_second});
  add_worst(
      "host memory", all, 1e9, "GB/s",
      [&](std::size_t few, std::size_t many) { return rates[few].threads < rates[many].threads; }, found);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

void require_alike(const std::string& who, std::string_view what, int one, std::string_view name, int other,
                   std::string_view other_name) {
  if (name == other_name) return;
  throw InvalidInput(
      fmt::format("{}: {} {} and {} are different ones, '{}' and '{}': choose alike ones by "
                  "CUDA_VISIBLE_DEVICES",
                  who, what, one, other, name, other_name));
}

std::vector<std::unique_ptr<Device>> open_cards(const std::string& who, int first, int count) {
  std::vector<std::unique_ptr<Device>> cards;
  for (int i = 0; i < count; ++i) {
    try {
      cards.push_back(open_cuda_device({.ordinal = first + i}));
    } catch (const InvalidInput& error) {
      if (i == 0) throw;
      throw InvalidInput(fmt::format("{}: {}; give fewer, or --device simulated", who, error.what()));
    }
    require_alike(who, "cards", first, cards.front()->info().name, first + i, cards.back()->info().name);
  }
  return cards;
}

CalibrateOptions full_calibration(DeviceBackend backend) {
  CalibrateOptions options;
  if (backend == DeviceBackend::cuda) {
    options.host.elements = beyond_caches;
    options.codec.elements = std::int64_t{16} << 20U;
  }
  options.models = backend == DeviceBackend::cuda ? card_models() : small_models();
  return options;
}

CalibrateOptions quick_calibration(DeviceBackend backend) {
  CalibrateOptions options;
  if (backend == DeviceBackend::cuda) options.models = few_card_models();
  options.link.largest = 16_MiB;
  options.link.repetitions = 3;
  options.link.longest_seconds = 0.004;
  options.compute.repetitions = 3;
  options.compute.layer_seconds = 0.03;
  options.compute.stream_bytes = 32_MiB;
  options.compute.launches = 200;
  options.codec.elements = std::int64_t{backend == DeviceBackend::cuda ? 8 : 1} << 20U;
  options.codec.repetitions = 3;
  options.host.elements = backend == DeviceBackend::cuda ? beyond_caches : std::int64_t{16} << 20U;
  options.host.repetitions = 3;
  options.peers.largest = 16_MiB;
  options.peers.repetitions = 3;
  options.peers.longest_seconds = 0.004;
  options.peers.copies = 8;
  return options;
}

// Measurements run one after another, so the largest of their needs counts.
Bytes host_bytes_of(const CalibrateOptions& options, DeviceBackend backend, int devices) {
  constexpr Bytes for_libraries = 128_MiB;  // memory of libraries, measured products included
  constexpr Bytes of_element = 16;          // bytes of one element of the update: four f32
  constexpr Bytes both_ways = 2, of_peer = 4 * 16_MiB;
  const Bytes simulated = backend == DeviceBackend::simulated ? 1 : 0, memories = 1 + simulated;
  const Bytes links = both_ways * memories * options.link.largest;
  const Bytes streams = simulated * 3 * options.compute.stream_bytes;
  const Bytes arrays = simulated * bytes_of(options.codec);
  const Bytes updates =
      of_element * static_cast<Bytes>(options.host.elements) + both_ways * memories * options.host.copied;
  const Bytes peers =
      devices < 2 ? 0 : static_cast<Bytes>(devices) * (simulated * 2 * options.peers.largest + of_peer);
  return for_libraries + std::max({links, streams, arrays, updates, peers});
}

MachineFile calibrate(Device& device, const LaunchTable& kernels, const CalibrateOptions& options) {
  MachineFile file;
  file.device = device.info().name;
  file.backend = device.info().backend;
  file.host = host_name();
  file.processor = processor_name();
  file.measured = now_in_utc();
  file.host_memory_bytes = host_memory();
  measure_link(device, options.link, file);
  {
    const Lane lane(device, LaneRole::compute);
    ComputeProbeOptions compute = options.compute;
    if (compute.types.empty()) compute.types = {DataType::f32, DataType::bf16};
    const OpProbeContext context{device, kernels, lane.id(), options.modelled};
    measure_compute(context, compute, file);
    for (const DataType type : compute.types) {
      const auto rates = measure_codec(context, options.codec, type, file.launch_seconds);
      file.codec.insert(file.codec.end(), rates.begin(), rates.end());
    }
    for (const DataType type : compute.types) load_attention(context, type);
    const MemoryInfo memory = device.memory_info();
    file.overhead_bytes = memory.overhead;
    file.device_bytes = memory.total == unlimited ? 0 : memory.total;
  }
  file.host_rates = measure_host(options.host);
  file.host_total_bytes_per_second = measure_host_total(device, options.host, file);
  for (const MatrixRate& rate : file.matrix)
    measure_models(device, kernels, rate.type, options.modelled, options.models, file);
  return file;
}

MachineFile calibrate(std::span<Device* const> devices, const LaunchTable& kernels,
                      const CalibrateOptions& options, const CommunicatorOptions& link) {
  MachineFile file = calibrate(*devices.front(), kernels, options);
  if (devices.size() > 1) file.peers = measure_peers(devices, link, options.peers, file);
  return file;
}

std::vector<std::string> contradictions(const MachineFile& file) {
  std::vector<std::string> found;
  add_copies("h2d", file.h2d.samples, found);
  add_copies("d2h", file.d2h.samples, found);
  add_copies("h2d, both", file.h2d_both.samples, found);
  add_copies("d2h, both", file.d2h_both.samples, found);
  for (const MatrixRate& rate : file.matrix) add_products(rate, found);
  add_threads(file.host_rates, found);
  return found;
}

}  // namespace stowage
