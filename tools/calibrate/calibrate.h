// Measures a machine through the public Device interface alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/choose_device.h"
#include "stowage/machine_file.h"
#include "tools/calibrate/codec_probe.h"
#include "tools/calibrate/compute_probe.h"
#include "tools/calibrate/host_probe.h"
#include "tools/calibrate/link_probe.h"
#include "tools/calibrate/model_probe.h"
#include "tools/calibrate/peer_probe.h"

namespace stowage {

// Returns the name of this host, as a machine's file has it; empty if the system does not tell.
std::string host_name();

// Opens `count` cards from number `first` on, to work together. Throws InvalidInput, in the name of `who`
// ("--devices 4"), for too few cards or different ones.
std::vector<std::unique_ptr<Device>> open_cards(const std::string& who, int first, int count);
// Throws InvalidInput, in the name of `who`, if cards `one` and `other` have different names. `what` says
// what these numbers count: "cards", "the cards of ranks".
void require_alike(const std::string& who, std::string_view what, int one, std::string_view name, int other,
                   std::string_view other_name);

struct CalibrateOptions {
  LinkProbeOptions link;
  ComputeProbeOptions compute;  // no types: those in which the device's backend computes
  CodecProbeOptions codec;      // the codec, measured in the same types
  HostProbeOptions host;
  ModelProbeOptions models;  // models, measured in the same types as `compute`
  PeerProbeOptions peers;    // options for several devices
  Machine modelled;          // op times of a device that runs in virtual time
};

CalibrateOptions full_calibration(DeviceBackend backend);  // takes some 30 s
// Takes a second or two. Measures no models on a device that computes on the CPU.
CalibrateOptions quick_calibration(DeviceBackend backend);

// Returns the bytes of the host that `calibrate` takes at most with `devices` devices: pinned memory, the
// update that it measures, and a simulated device's own memory.
Bytes host_bytes_of(const CalibrateOptions& options, DeviceBackend backend, int devices = 1);

// `kernels`: the device's own table. Takes 2 GiB of the device, and the memory of the models that fit; gives
// all back. The caller sets the note. Throws DeviceError and OutOfMemory as the device does.
MachineFile calibrate(Device& device, const LaunchTable& kernels, const CalibrateOptions& options);

// Calibrates the first of several devices of one kind, then measures all of them together (measure_peers).
MachineFile calibrate(std::span<Device* const> devices, const LaunchTable& kernels,
                      const CalibrateOptions& options, const CommunicatorOptions& link);

// Finds measurements that cannot all be right, as on a machine that did other work during the measurement.
// Returns a sentence for each curve in which a larger copy, a larger product or more threads had less than
// half the rate of a smaller copy, a smaller product or fewer threads: the worst pair of the curve.
std::vector<std::string> contradictions(const MachineFile& file);

}  // namespace stowage
