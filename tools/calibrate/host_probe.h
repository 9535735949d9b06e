// Measures host memory as the optimizer on the host sees it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "stowage/device.h"
#include "stowage/launch_table.h"
#include "stowage/machine_file.h"

namespace stowage {

// An update in host memory by AdamW: parameter, gradient and both moments, then the clip's norm and scale.
class HostUpdate {
 public:
  explicit HostUpdate(std::int64_t elements);

  // Returns the bytes that an update moves: it reads four vectors and writes three of them again.
  double bytes() const { return 7 * static_cast<double>(vector_.bytes()); }

  // Makes an update and returns its seconds.
  double seconds();

 private:
  Kernel kernel_;
  Tensor vector_;
  Tensor clip_;
  std::array<std::unique_ptr<float[]>, 4> values_;
  std::array<double, 2> clip_values_{1, 1};
};

struct HostProbeOptions {
  // Elements of the parameter; the update has four f32 tensors of this size.
  std::int64_t elements = std::int64_t{32} << 20;
  int repetitions = 5;
  Bytes copied = 256_MiB;  // bytes on either side for copies each way: more than a cache holds
  int most_threads = 0;    // most threads; 0: as many as parallel loops may use
};

// Measures AdamW on f32 by the host's own kernel, with 1, 2, 4, … threads up to the most. Leaves the number
// of threads of parallel loops as it was; no other parallel loop may run meanwhile.
std::vector<HostRate> measure_host(const HostProbeOptions& options);

// Returns the bytes per second that AdamW with the most threads and copies both ways take of host memory
// together. `file` has the rates of the update and of the copies alone. Throws DeviceError, OutOfMemory.
double measure_host_total(Device& device, const HostProbeOptions& options, const MachineFile& file);

}  // namespace stowage
