#include "samples/run/run_device.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "src/base/parallel_for.h"
#include "src/device/host_limits.h"
#include "src/machine/chosen_machine.h"
#include "stowage/choose_device.h"
#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "stowage/machine_file.h"
#include "stowage/simulated_device.h"
#include "tools/calibrate/calibrate.h"
#include "tools/calibrate/step_probe.h"
#include "tools/choices/machine_choice.h"

namespace stowage::samples {
namespace {

std::string link_text(const Link& link) {
  if (!link.throttled) return "link as fast as memory";
  return fmt::format("link {:.3g} GB/s each way after {:.0f} us", link.bytes_per_second / 1e9,
                     link.latency_seconds * 1e6);
}

// Training runs in the memory that is free now, beside what the context and the libraries hold already. The
// card with the least free memory decides.
void fit_budget(Options& options, const RunCards& cards) {
  Bytes available = unlimited;
  const auto add = [&](const MemoryInfo& memory) {
    available = std::min(available, memory.free + memory.overhead);
  };
  for (const auto& card : cards.here) add(card->memory_info());
  for (const MemoryInfo& memory : cards.elsewhere) add(memory);
  Bytes& budget = options.budget.device;
  if (budget == unlimited) budget = available;
  if (budget <= available) return;
  throw InvalidInput(fmt::format(
      "--device-memory {}: only {} bytes ({}) of {} are free; give at most that, or end what else uses it",
      budget, available, format_bytes(available),
      options.devices == 1 ? "the card" : fmt::format("one of the {} cards", options.devices)));
}

MachineFile machine_of(const std::string& choice) {
  try {
    return read_machine(choice, machines_folder());
  } catch (const InvalidInput& error) {
    const std::string text = error.what();
    throw InvalidInput(text.starts_with("--machine") ? text : "--machine " + text);
  }
}

// Returns the machine that --machine means; sets RunDevice::planned_for if it is not `device` of this host.
MachineFile wanted_machine(const Options& options, const std::string& device, std::string& planned_for) {
  MachineFile file = machine_of(options.machine);
  if (file.device != device || file.host != host_name()) planned_for = describe_machine(file);
  return file;
}

// Returns the machine of each device; of one device alone, if the file knows of no others.
Machine machine_of_each(const MachineFile& file, const Options& options) {
  if (!file.peers) return machine_for(file, options.type);
  if (options.devices > file.peers->devices)
    throw InvalidInput(fmt::format(
        "{}: --machine {} is a machine of {} devices; leave out --machine, and the run measures what "
        "it has, or give a machine of {} (stowage calibrate --devices {})",
        devices_given(options), options.machine, file.peers->devices, options.devices, options.devices));
  return machine_for(file, options.type, static_cast<int>(options.devices));
}

// Supposes other cards if the file knows of none: a card sends to another as fast as the host does, and one
// host memory serves all cards of a machine.
void suppose_peers(MachineFile& file, const Options& options, const RunCards& cards) {
  if (options.devices == 1 || file.peers) return;
  file.peers = PeerDevices{.devices = static_cast<int>(options.devices),
                           .devices_per_host_memory = static_cast<int>(cards.on_machine),
                           .link = machine_for(file, options.type).h2d};
}

// Measures with less memory than the budget allows, and with little if the host cannot page-lock so much.
MachineFile quick_file(Device& card, const Options& options) {
  const Budget& budget = options.budget;
  CalibrateOptions how = quick_calibration(DeviceBackend::cuda);
  how.models = {};  // only the run's own model is measured
  const std::vector<HostLimit> limits = read_host_limits();
  const HostLimit* const limit = tightest(limits);
  const Bytes host = std::min(budget.host, limit == nullptr ? unlimited : limit->room);
  const Bytes least = 4_MiB, arena = arena_within(card, budget.device, card.memory_info().overhead);
  how.host.copied = std::clamp(arena / 8, least, how.host.copied);
  if (host != unlimited) {
    how.host.elements =
        std::clamp(static_cast<std::int64_t>(host / 64), std::int64_t{4} << 20U, how.host.elements);
    how.host.copied = std::clamp(host / 16, least, how.host.copied);
  }
  require_room_to_measure(host_bytes_of(how, DeviceBackend::cuda), limits, or_measured);
  try {
    return calibrate(card, launch_table_for(card), how);
  } catch (const OutOfMemory&) {
    how.host.copied = least;
    return calibrate(card, launch_table_for(card), how);
  }
}

// Returns the most that context and libraries take of a card, with what reaching the other cards will take
// once the plan is made.
Bytes overhead_of_cards(const Options& options, const Graph& graph, const RunDevice& run,
                        const MachineFile& file) {
  const std::string backend = run.cards.here.front()->info().backend;
  const Bytes for_peers = overhead_for_peers(backend, static_cast<int>(options.devices));
  // Memory that a rank page-locks is page-locked for all cards of the process.
  const Bytes of_each = most_pinned_bytes(graph, options.budget.host);
  const Bytes pinned = std::min(options.budget.host, run.cards.here.size() * of_each);
  Bytes held = file.overhead_bytes;
  for (const MemoryInfo& memory : run.cards.elsewhere) held = std::max(held, memory.overhead);
  Bytes most = file.overhead_bytes;
  for (const auto& card : run.cards.here) most = std::max(most, for_peers + overhead_on(*card, held, pinned));
  return most;
}

// The run keeps to its budget also while it is measured.
OpProfile own_profile(const RunDevice& run, const Options& options) {
  Device& card = *run.cards.here.front();
  const Budget budget{.device = arena_within(card, options.budget.device, run.machine.overhead_bytes),
                      .host = options.budget.host};
  return profile_on_card(card, run.machine, *options.family, options.model, options.type,
                         optimizer_of(options), budget);
}

void prepare_cards(RunDevice& run, Options& options, const Graph& graph) {
  Device& first = *run.cards.here.front();
  MachineFile file = options.machine.empty() ? quick_file(first, options)
                                             : wanted_machine(options, first.info().name, run.planned_for);
  suppose_peers(file, options, run.cards);
  run.machine = machine_of_each(file, options);
  run.machine.overhead_bytes = overhead_of_cards(options, graph, run, file);
  run.profile = options.machine.empty() ? own_profile(run, options) : profile_of(file, options.type);
  // Libraries have loaded their code by now.
  run.machine.overhead_bytes = overhead_of_cards(options, graph, run, file);
  for (const auto& card : run.cards.here) card->reset_counters();  // the run's own counts begin here
  fit_budget(options, run.cards);
  run.which = run.cards.choice.reason;
  if (options.devices > 1) run.which += fmt::format(", the first of {}", options.devices);
}

}  // namespace

void prepare_device(RunDevice& run, Options& options, const Graph& graph) {
  if (!run.cards.here.empty()) return prepare_cards(run, options, graph);
  if (options.machine.empty()) {
    Calibration calibration = calibrate_quick(*options.family, options.model, options.type,
                                              optimizer_of(options), options.link, read_host_limits());
    run.machine = calibration.machine;
    run.profile = std::move(calibration.profile);
    run.fitted = calibration.fitted;
    run.shares_host = true;
    run.machine.h2d_both_bytes_per_second = run.machine.d2h_both_bytes_per_second =
        options.link_both_bytes_per_second;
  } else {
    const MachineFile file = wanted_machine(options, "simulated", run.planned_for);
    run.machine = machine_of_each(file, options);
    run.shares_host = !file.peers;
    run.profile = profile_of(file, options.type, file.peers ? static_cast<int>(options.devices) : 1);
  }
  const int threads = parallel_threads();
  run.which = fmt::format("{}, {} CPU thread{}, {}", run.cards.choice.reason, threads,
                          threads == 1 ? "" : "s", link_text(run.machine.h2d));
}

void share_host(RunDevice& prepared, std::int64_t devices, Graph& graph) {
  if (!prepared.shares_host || devices == 1) return;
  const auto slower = static_cast<double>(devices);
  Machine& machine = prepared.machine;
  machine.peer = machine.h2d;
  for (double* rate : {&machine.flops_per_second, &machine.device_bytes_per_second,
                       &machine.host_bytes_per_second, &machine.host_total_bytes_per_second})
    *rate /= slower;
  for (double& rate : machine.flops_by_type) rate /= slower;
  machine.codec_4_bits /= slower;
  machine.codec_8_bits /= slower;
  for (Op& op : graph.ops)
    if (op.cost.seconds) *op.cost.seconds *= slower;
}

std::vector<std::unique_ptr<Device>> open_run_devices(RunDevice& prepared, const Options& options) {
  if (!prepared.cards.here.empty()) return std::move(prepared.cards.here);
  std::vector<std::unique_ptr<Device>> devices;
  const auto all = static_cast<Bytes>(options.devices);
  const Bytes host = options.budget.host == unlimited ? unlimited : options.budget.host / all;
  for (Bytes i = 0; i < (options.processes > 1 ? 1 : all); ++i)
    devices.push_back(
        open_simulated_device({.capacity = prepared.machine.arena_in(options.budget.device),
                               .host_capacity = host,
                               .executor = Executor::threaded,
                               .h2d = prepared.machine.h2d,
                               .d2h = prepared.machine.d2h,
                               .h2d_both_bytes_per_second = prepared.machine.h2d_both_bytes_per_second,
                               .d2h_both_bytes_per_second = prepared.machine.d2h_both_bytes_per_second,
                               .poison = Poison::sampled}));
  return devices;
}

}  // namespace stowage::samples
