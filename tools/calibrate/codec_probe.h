// Measures the kernels `encode` and `decode` (launch_table.h).
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/machine_file.h"
#include "tools/calibrate/compute_probe.h"

namespace stowage {

struct CodecProbeOptions {
  std::int64_t elements = std::int64_t{4} << 20U;  // elements of the array
  int repetitions = 5;                             // runs of each kernel, of which the median counts
};

// Returns the most bytes of the device that measure_codec takes.
Bytes bytes_of(const CodecProbeOptions& options);

// Measures arrays of `type` with codes of 4 and of 8 bits; `launch_seconds` is taken off each run. Returns
// nothing for f64, which has no codes, and for a device without the kernels.
std::vector<CodecRate> measure_codec(const OpProbeContext& context, const CodecProbeOptions& options,
                                     DataType type, double launch_seconds);

}  // namespace stowage
