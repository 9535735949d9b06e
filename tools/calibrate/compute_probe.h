// Measures the compute lane: products, device memory, and what a launch costs.
#pragma once

#include <vector>

#include "stowage/machine_file.h"
#include "tools/calibrate/op_probe.h"

namespace stowage {

struct ComputeProbeOptions {
  std::vector<DataType> types;   // of products
  int repetitions = 5;           // of a product; the median counts
  double layer_seconds = 0.5;    // products are made larger while one layer's would take at most this
  int most_stages = 4;           // … and at most so often
  Bytes stream_bytes = 256_MiB;  // of each of the three operands that device memory is measured with
  int launches = 2000;           // tiny ops in a row
};

// Fills `matrix`, `device_bytes_per_second` and `launch_seconds` of `file`.
void measure_compute(const OpProbeContext& context, const ComputeProbeOptions& options, MachineFile& file);

}  // namespace stowage
