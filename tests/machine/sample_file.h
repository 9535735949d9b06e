// A machine file with every field set.
#pragma once

#include "stowage/machine_file.h"

namespace stowage::test {

inline MachineFile sample_file() {
  MachineFile file;
  file.device = "Card \"7\"";
  file.backend = "cuda";
  file.host = "node";
  file.processor = "A CPU @ 2.00GHz";
  file.measured = "2026-11-21T13:50:00Z";
  file.note = "full";
  file.device_bytes = 140_GiB;
  file.overhead_bytes = 600_MiB;
  file.h2d = {{{4096, 1.1e-5}, {1 << 20, 3.0e-5}}, {55e9, 1.0 / 96'000, true}};
  file.d2h = {{{4096, 1.2e-5}}, {52e9, 9e-6, true}};
  file.h2d_both = {{{4096, 1.3e-5}}, {45e9, 9e-6, true}};
  file.d2h_both = {{{4096, 1.4e-5}}, {44e9, 9e-6, true}};
  file.matrix = {{DataType::f32, 48e12, {{512, 512, 1536, 2e-5}}},
                 {DataType::bf16, 700e12, {{8192, 4096, 4096, 4e-4}}}};
  file.codec = {{DataType::f32, CodeBits::eight, {2.5e12, 3.5e12}},
                {DataType::bf16, CodeBits::four, {1.25e12, 3.25e12}},
                {DataType::bf16, CodeBits::eight, {1.75e12, 3.75e12}}};
  file.device_bytes_per_second = 3.9e12;
  file.launch_seconds = 2.5e-6;
  file.host_rates = {{1, 12e9}, {16, 150e9}, {8, 200e9}};
  file.host_total_bytes_per_second = 210e9;
  file.host_memory_bytes = 64_GiB;
  file.ops = {{"linear", DataType::bf16, 1e9, 3e6, 2e-5}, {"add", DataType::f32, 10, 120, 3e-6}};
  file.compute_beside_copy = 0.75;
  file.compute_beside_host = 0.5;
  file.host_beside_compute = 0.25;
  file.peers = PeerDevices{8, 4, {400e9, 2e-5, true}};
  return file;
}

}  // namespace stowage::test
