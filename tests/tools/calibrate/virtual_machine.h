// A device in virtual time, whose copies and ops take exactly what a Machine says.
#pragma once

#include <memory>

#include "stowage/machine.h"
#include "stowage/simulated_device.h"

namespace stowage::test {

inline Machine odd_machine() {
  Machine machine;
  machine.h2d = {12e9, 21e-6, true};
  machine.d2h = {5e9, 7e-6, true};
  machine.flops_per_second = 3.3e12;
  machine.device_bytes_per_second = 4.4e10;
  machine.launch_seconds = 3.5e-6;
  return machine;
}

inline std::unique_ptr<SimulatedDevice> open_virtual_device(const Machine& machine) {
  return open_simulated_device({.capacity = 256_MiB,
                                .executor = Executor::virtual_time,
                                .h2d = machine.h2d,
                                .d2h = machine.d2h,
                                .poison = Poison::sampled});
}

}  // namespace stowage::test
