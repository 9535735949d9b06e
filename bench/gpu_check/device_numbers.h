// Device memory filled with numbers like a model's: bf16, normally distributed.
#pragma once

#include "stowage/device.h"

namespace stowage::bench {

// Returns `bytes` of device memory filled with 2^20 draws from the seed with this deviation, repeated. Waits
// until the copies have ended.
DeviceMemory normal_numbers(Device& device, Bytes bytes, unsigned seed, float deviation);

}  // namespace stowage::bench
