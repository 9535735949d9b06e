// Measures a machine through the public Device interface alone.
#pragma once

#include "tools/calibrate/compute_probe.h"
#include "tools/calibrate/host_probe.h"
#include "tools/calibrate/link_probe.h"
#include "tools/calibrate/model_probe.h"

namespace stowage {

struct CalibrateOptions {
  LinkProbeOptions link;
  ComputeProbeOptions compute;  // no types: those that the device's backend computes in
  HostProbeOptions host;
  ModelProbeOptions models;  // in the same types
  Machine modelled;          // op times of a device that runs in virtual time
};

CalibrateOptions full_calibration();   // some 30 s
CalibrateOptions quick_calibration();  // less than a second: no models

// `kernels`: the device's own table. Takes up to 2 GiB of the device, gives all back. The note is the
// caller's. Throws DeviceError and OutOfMemory as the device does.
MachineFile calibrate(Device& device, const LaunchTable& kernels, const CalibrateOptions& options);

}  // namespace stowage
