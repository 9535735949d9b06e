// A machine file, for programs that would else measure the machine first.
#pragma once

#include <string>
#include <vector>

#include "stowage/machine_file.h"

namespace stowage::samples {

inline std::string machine_json(const std::vector<DataType>& types) {
  MachineFile file;
  file.device = "a card";
  file.backend = "cuda";
  file.host = "elsewhere";
  file.processor = "some";
  file.measured = "2026-01-01T00:00:00Z";
  file.overhead_bytes = 1_MiB;
  const std::vector<CopySample> copies = {{4_KiB, 1e-5}, {64_MiB, 1e-3}};
  for (CopyCurve* curve : {&file.h2d, &file.d2h, &file.h2d_both, &file.d2h_both}) *curve = {copies, Link{}};
  for (const DataType type : types) file.matrix.push_back({type, 5e14, {{1024, 1024, 1024, 1e-5}}});
  file.device_bytes_per_second = 3e12;
  file.launch_seconds = 3e-6;
  file.host_rates = {{1, 1e10}};
  return to_json(file);
}

}  // namespace stowage::samples
