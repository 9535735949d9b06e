// Opening a card: what the CUDA module offers to the program that loads it.
#pragma once

#include <memory>

#include "stowage/cuda_device.h"

namespace stowage::cuda {

// Both as include/stowage/cuda_device.h says.
CudaStatus status();
std::unique_ptr<Device> open_device(const CudaOptions& options);

}  // namespace stowage::cuda
