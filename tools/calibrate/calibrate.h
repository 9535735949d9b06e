// Measures a machine through the public Device interface alone.
#pragma once

#include <string>
#include <vector>

#include "stowage/choose_device.h"
#include "stowage/machine_file.h"
#include "tools/calibrate/compute_probe.h"
#include "tools/calibrate/host_probe.h"
#include "tools/calibrate/link_probe.h"
#include "tools/calibrate/model_probe.h"
#include "tools/calibrate/peer_probe.h"

namespace stowage {

struct CalibrateOptions {
  LinkProbeOptions link;
  ComputeProbeOptions compute;  // no types: those that the device's backend computes in
  HostProbeOptions host;
  ModelProbeOptions models;  // in the same types
  PeerProbeOptions peers;    // of several devices
  Machine modelled;          // op times of a device that runs in virtual time
};

CalibrateOptions full_calibration(DeviceBackend backend);  // some 30 s
// A second or two. Of a device that computes on the CPU, no models.
CalibrateOptions quick_calibration(DeviceBackend backend);

// Bytes of the host that `calibrate` takes at most, of so many devices: pinned, of the update that it
// measures, and a simulated device's own.
Bytes host_bytes_of(const CalibrateOptions& options, DeviceBackend backend, int devices = 1);

// `kernels`: the device's own table. Takes 2 GiB of the device, and what the models need of those that fit;
// gives all back. The note is the
// caller's. Throws DeviceError and OutOfMemory as the device does.
MachineFile calibrate(Device& device, const LaunchTable& kernels, const CalibrateOptions& options);

// The same of the first of several devices of one kind, and then measure_peers.
MachineFile calibrate(std::span<Device* const> devices, const LaunchTable& kernels,
                      const CalibrateOptions& options, const CommunicatorOptions& link);

// One sentence for each curve in which a larger copy, a larger product or more threads had less than half the
// rate of a smaller one or fewer: the worst of each. Empty: none.
std::vector<std::string> contradictions(const MachineFile& file);

}  // namespace stowage
