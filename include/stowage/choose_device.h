// Opens the device that a person asked for by name.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "stowage/cuda_device.h"
#include "stowage/device.h"
#include "stowage/simulated_device.h"

namespace stowage {

enum class DeviceBackend : std::uint8_t { simulated, cuda };

struct DeviceRequest {
  std::string name = "auto";        // "auto", "cuda", "cuda:N" or "simulated"
  CudaOptions cuda = {};            // options of a CUDA device; "cuda:N" sets the ordinal
  SimulatedOptions simulated = {};  // options of a simulated device
};

struct BackendChoice {
  DeviceBackend backend = DeviceBackend::simulated;
  int ordinal = 0;     // number of the CUDA device
  std::string reason;  // one line: the chosen device, and why
};

// Chooses without opening. "auto": CUDA if a driver and a card answer, else the simulated device; "simulated"
// does not even look for a card. Throws InvalidInput for any other name, and for "cuda" without a card, with
// the reason and what to do.
BackendChoice choose_device(const std::string& name);

struct ChosenDevice {
  std::unique_ptr<Device> device;
  std::string reason;  // one line: the chosen device, and why
};

// Chooses and opens. Throws as choose_device, open_cuda_device and open_simulated_device do.
ChosenDevice open_device(const DeviceRequest& request);

}  // namespace stowage
