// Device memory with numbers in it that look like a model's: bf16, normally distributed.
#pragma once

#include "stowage/device.h"

namespace stowage::bench {

// As many elements as `bytes` hold: 2^20 draws of the seed with this deviation, again and again. Returns when
// they are there.
DeviceMemory normal_numbers(Device& device, Bytes bytes, unsigned seed, float deviation);

}  // namespace stowage::bench
