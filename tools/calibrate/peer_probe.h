// Measures several devices of one kind together: the rate at which they receive from each other, and the
// speed that the links to the host leave to each other.
#pragma once

#include <span>

#include "stowage/communicator.h"
#include "stowage/device.h"
#include "stowage/machine_file.h"

namespace stowage {

struct PeerProbeOptions {
  // Bytes of the wholes (the shares of all devices together) that are measured.
  Bytes smallest = 256_KiB;
  Bytes largest = 64_MiB;
  int repetitions = 9;
  double longest_seconds = 0.5;  // no larger whole is tried once one has taken this much
  Bytes piece = 4_MiB;           // bytes of a copy when all links copy at once
  int copies = 16;
};

// Lets all devices gather and exchange wholes of each size at the same time, and copy both ways. `devices`:
// two or more, all CUDA cards or all simulated ones, which reach each other by `link`. `file` has the link of
// one device alone. Takes two wholes of each device, and 16 MiB four times; gives all back. Throws
// DeviceError, OutOfMemory, CommunicatorError; and InvalidInput, with what to do, if cards
// cannot reach each other.
PeerDevices measure_peers(std::span<Device* const> devices, const CommunicatorOptions& link,
                          const PeerProbeOptions& options, const MachineFile& file);

// Returns whether gathers use the links to the host, on which copies slow them. `gathered`, `copied`, `both`:
// seconds of some gathers alone, of copies that take about as long, and of both at once. If gathers have a
// path of their own, both take as long as the longer one. On one link they take longer by the shorter one's
// time, or by less if gathers alone reach only a `part` of the link's bytes per second.
PeerPath path_of(double gathered, double copied, double both, double part);

}  // namespace stowage
