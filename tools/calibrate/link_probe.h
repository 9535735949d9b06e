// Measures the link: pinned copies by size, each direction alone and both at once.
#pragma once

#include "stowage/device.h"
#include "stowage/machine_file.h"

namespace stowage {

struct LinkProbeOptions {
  Bytes smallest = 4_KiB;
  Bytes largest = 64_MiB;
  int repetitions = 9;
  double longest_seconds = 0.5;  // no longer copy is tried once one has taken this much
};

// What one of `count` copies in a row takes while copies go the other way, where all of them took `all`
// seconds, those of the other way only `others`, and one takes `alone` without them: the rest went alone.
double seconds_beside(int count, double all, double others, double alone);

// Fills the four curves of `file`. Takes `largest` bytes twice, pinned and on the device. DeviceError,
// OutOfMemory.
void measure_link(Device& device, const LinkProbeOptions& options, MachineFile& file);

}  // namespace stowage
