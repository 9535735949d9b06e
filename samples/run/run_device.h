// The devices that a run plans for, and runs on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "samples/run/calibrate_quick.h"
#include "samples/run/run_cards.h"
#include "samples/task/task.h"
#include "src/machine/op_profile.h"
#include "stowage/device.h"

namespace stowage::samples {

struct RunDevice {
  Machine machine;    // machine of each device, measured at the start or read from the machine file
  OpProfile profile;  // times of ops measured at the start or for the machine file; may be empty
  FittedRates fitted{true, true};  // rates of `machine` that are not its defaults
  std::string which;               // device and the reason for its choice, for the table
  // The machine whose rates the plan takes, if they were not measured on this device and host; else empty.
  std::string planned_for;
  bool shares_host = false;  // `machine` is that of one simulated device alone: see share_host
  RunCards cards;            // simulated devices are opened when their capacity is known
};

// Fills in the rest of `run`, which has its cards. Measures what the planner must know of the model that
// `build` makes (under a second) unless a file has it, on the first card for all; and makes the budget one
// that all cards can keep: an unlimited budget becomes the free memory. Throws InvalidInput for a type that
// the device does not compute in, a machine that is not known or cannot be read, or a budget beyond what is
// free. `graph` is what will be trained: what it may page-lock counts to the card's overhead.
void prepare_device(RunDevice& run, Options& options, const Graph& graph);

// Changes `prepared.machine` and the times of `graph`'s ops from those of one device alone to those of each
// of several simulated devices, which share the cores and the memory of the host. A device sends to another
// as fast as the host does.
void share_host(RunDevice& prepared, std::int64_t devices, Graph& graph);

// The devices to train on, as many as this process has; all simulated ones share the host's memory limit.
std::vector<std::unique_ptr<Device>> open_run_devices(RunDevice& prepared, const Options& options);

}  // namespace stowage::samples
