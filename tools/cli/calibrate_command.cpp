#include "tools/cli/calibrate_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "src/base/output_file.h"
#include "src/base/parallel_for.h"
#include "src/device/host_limits.h"
#include "src/machine/chosen_machine.h"
#include "stowage/choose_device.h"
#include "stowage/error.h"
#include "tools/calibrate/calibrate.h"
#include "tools/choices/model_spec.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

constexpr std::int64_t most_devices = 64;  // most devices that a machine's file may have

double rate_of(const CopyCurve& curve, std::size_t i) {
  if (i >= curve.samples.size()) return 0;
  return static_cast<double>(curve.samples[i].bytes) / curve.samples[i].seconds / 1e9;
}

void add_link(Lines& lines, const MachineFile& file) {
  auto fit = [&](std::string_view label, const CopyCurve& curve) {
    lines.add(label, "{:8.2f} GB/s after {:.1f} us", curve.fit.bytes_per_second / 1e9,
              curve.fit.latency_seconds * 1e6);
  };
  fit("h2d", file.h2d);
  fit("d2h", file.d2h);
  fit("h2d, both", file.h2d_both);
  fit("d2h, both", file.d2h_both);
  lines.add("", "{:>11} {:>10} {:>10} {:>10} {:>10}  GB/s", "copy", "h2d", "d2h", "h2d, both", "d2h, both");
  for (std::size_t i = 0; i < file.h2d.samples.size(); ++i) {
    lines.add("", "{:>11} {:10.3f} {:10.3f} {:10.3f} {:10.3f}", format_bytes(file.h2d.samples[i].bytes),
              rate_of(file.h2d, i), rate_of(file.d2h, i), rate_of(file.h2d_both, i),
              rate_of(file.d2h_both, i));
  }
}

void add_products(Lines& lines, const MachineFile& file) {
  for (const MatrixRate& rate : file.matrix) {
    lines.add(fmt::format("{} products", to_string(rate.type)), "{:8.1f} GFLOP/s",
              rate.flops_per_second / 1e9);
    for (const MatrixSample& sample : rate.samples) {
      lines.add("", "{:>5} x {:>5} x {:>5} {:12.1f} GFLOP/s", sample.rows, sample.inner, sample.columns,
                flops_of(sample) / sample.seconds / 1e9);
    }
  }
}

void add_codec(Lines& lines, const MachineFile& file) {
  for (const CodecRate& rate : file.codec)
    lines.add(fmt::format("{} codec", to_string(rate.type)),
              "{:8.1f} GB/s encoded to {} bits, {:.1f} GB/s decoded",
              rate.rates.encode_bytes_per_second / 1e9, static_cast<int>(rate.bits),
              rate.rates.decode_bytes_per_second / 1e9);
}

Link simulated_link(const CalibrateCommand& command, const BackendChoice& choice) {
  if (command.link.empty()) return parse_link("8GB/s");
  if (choice.backend != DeviceBackend::simulated)
    throw InvalidInput("--link is the simulated device's; leave it out, or ask for --device simulated");
  return with_prefix("--link: ", [&] { return parse_link(command.link); });
}

// Adds the rates at which a device receives bytes that all devices gather or exchange.
void add_peers(Lines& lines, const PeerDevices& peers) {
  lines.add("devices", "{}, {} at each host memory", peers.devices, peers.devices_per_host_memory);
  lines.add("from peers", "{:8.2f} GB/s after {:.1f} us", peers.link.bytes_per_second / 1e9,
            peers.link.latency_seconds * 1e6);
  if (peers.path == PeerPath::link) lines.add("", "over the links to the host, which copies share");
  const auto rate = [](const CopySample& sample) {
    return static_cast<double>(sample.bytes) / sample.seconds / 1e9;
  };
  if (!peers.gathers.empty()) lines.add("", "{:>11} {:>10} {:>10}  GB/s", "received", "gather", "exchange");
  for (std::size_t i = 0; i < std::min(peers.gathers.size(), peers.exchanges.size()); ++i)
    lines.add("", "{:>11} {:10.3f} {:10.3f}", format_bytes(peers.gathers[i].bytes), rate(peers.gathers[i]),
              rate(peers.exchanges[i]));
  if (const auto& each = peers.together)
    lines.add("all at once", "{:.3f} GB/s h2d, {:.3f} d2h of each; both ways {:.3f} and {:.3f}",
              each->h2d / 1e9, each->d2h / 1e9, each->h2d_both / 1e9, each->d2h_both / 1e9);
}

void add_steps(Lines& lines, const MachineFile& file) {
  if (file.ops.empty()) return;
  lines.add("ops", "{} kinds and sizes, in steps of small models", file.ops.size());
  if (file.backend == "simulated")
    lines.add("", "at once: compute keeps {:.0f}% beside copies, {:.0f}% beside updates, which keep {:.0f}%",
              100 * file.compute_beside_copy, 100 * file.compute_beside_host, 100 * file.host_beside_compute);
}

using Devices = std::vector<std::unique_ptr<Device>>;

Devices open_devices(const BackendChoice& choice, const Link& link, std::int64_t count) {
  if (choice.backend == DeviceBackend::cuda)
    return open_cards(fmt::format("--devices {}", count), choice.ordinal, static_cast<int>(count));
  Devices devices;
  for (std::int64_t i = 0; i < count; ++i)
    devices.push_back(
        open_simulated_device({.capacity = unlimited, .h2d = link, .d2h = link, .poison = Poison::sampled}));
  return devices;
}

CalibrateOptions options_of(const CalibrateCommand& command, DeviceBackend backend) {
  return command.quick ? quick_calibration(backend) : full_calibration(backend);
}

// Throws OutOfMemory where the system would end the program while it measures.
void require_room(const CalibrateCommand& command, DeviceBackend backend, std::int64_t devices) {
  require_room_to_measure(host_bytes_of(options_of(command, backend), backend, static_cast<int>(devices)),
                          read_host_limits());
}

MachineFile measure(const CalibrateCommand& command, const BackendChoice& choice, const Link& link,
                    std::int64_t count) {
  const Devices devices = open_devices(choice, link, count);
  std::vector<Device*> all;
  for (const auto& device : devices) all.push_back(device.get());
  if (choice.backend == DeviceBackend::cuda) leave_threads(static_cast<int>(count));  // trainers do the same
  MachineFile file =
      calibrate(all, launch_table_for(*devices.front()), options_of(command, choice.backend), {.peer = link});
  file.note = fmt::format("{} measurement, on {}{}", command.quick ? "quick" : "full", choice.reason,
                          count == 1 ? "" : fmt::format(", the first of {}", count));
  return file;
}

OutputFile output_of(const CalibrateCommand& command) {
  if (!command.output_file.empty()) return {"--output", command.output_file, Writing::whole};
  const std::string path = path_of_machine_here();
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error)
    throw InvalidInput(fmt::format("cannot write {}: {}; give --output FILE", path, error.message()));
  return {"", path, Writing::whole};
}

}  // namespace

CLI::App* add_calibrate(CLI::App& app, CalibrateCommand& command) {
  CLI::App* calibrate =
      app.add_subcommand("calibrate", "Measures this machine for plan --machine and train_gpt --machine");
  calibrate->add_option("--device", command.device, "auto, cuda, cuda:N or simulated")->capture_default_str();
  calibrate
      ->add_option("--devices", command.devices,
                   "so many of them: also what they receive from each other, and what their links leave "
                   "to each other")
      ->capture_default_str();
  calibrate->add_flag("--quick", command.quick, "in less than a second instead of some twenty");
  calibrate->add_option("--link", command.link,
                        "the simulated device's link, each way: RATE or unthrottled (8GB/s)");
  calibrate->add_option("--output", command.output_file,
                        "write the machine's file here (left out: where `--machine here` reads it)");
  return calibrate;
}

std::string describe(const MachineFile& file) {
  Lines lines;
  lines.add("device", "{} ({}), {}", file.device, file.backend,
            file.device_bytes == 0 ? "without a limit of memory" : format_bytes(file.device_bytes));
  lines.add(
      "host", "{}, {}{}", file.host, file.processor,
      file.host_memory_bytes == 0 ? "" : fmt::format(", {} of memory", format_bytes(file.host_memory_bytes)));
  lines.add("measured", "{}, {}", file.measured, file.note);
  add_link(lines, file);
  add_products(lines, file);
  add_codec(lines, file);
  lines.add("device memory", "{:8.1f} GB/s", file.device_bytes_per_second / 1e9);
  lines.add("launch", "{:8.2f} us", file.launch_seconds * 1e6);
  lines.add("overhead", "{} of the device, for context, libraries and workspaces",
            format_bytes(file.overhead_bytes));
  for (const HostRate& rate : file.host_rates) {
    lines.add("host memory", "{:8.1f} GB/s with {} thread{}", rate.bytes_per_second / 1e9, rate.threads,
              rate.threads == 1 ? "" : "s");
  }
  if (file.host_total_bytes_per_second > 0)
    lines.add("host memory", "{:8.1f} GB/s with copies both ways", file.host_total_bytes_per_second / 1e9);
  if (file.peers) add_peers(lines, *file.peers);
  add_steps(lines, file);
  return std::move(lines).text();
}

int run_calibrate_command(const CalibrateCommand& command, std::string& output) {
  const BackendChoice choice = choose_device(command.device);
  const Link link = simulated_link(command, choice);
  const std::int64_t count = parse_count("--devices", command.devices, most_devices);
  OutputFile machine = output_of(command);
  require_room(command, choice.backend, count);
  const MachineFile file = measure(command, choice, link, count);
  machine.write(to_json(file));
  machine.commit();
  output += describe(file);
  for (const std::string& each : contradictions(file))
    output += fmt::format("{:<14}{}: measure again while nothing else runs\n", "contradiction", each);
  output += fmt::format("{:<14}{}{}\n", "written", machine.path(),
                        command.output_file.empty() ? ", for --machine here" : "");
  return 0;
}

}  // namespace stowage
