#include "bench/gpu_check/device_numbers.h"

#include <algorithm>
#include <random>

#include "kernels/math/bfloat16.h"

namespace stowage::bench {

DeviceMemory normal_numbers(Device& device, Bytes bytes, unsigned seed, float deviation) {
  constexpr Bytes drawn = Bytes{1} << 20U;
  const Bytes count = std::min(drawn, bytes / sizeof(Bfloat16));
  DeviceMemory numbers(device, MemoryKind::device, bytes);
  const DeviceMemory host(device, MemoryKind::pinned, std::max<Bytes>(count, 1) * sizeof(Bfloat16));
  auto* const draws = reinterpret_cast<Bfloat16*>(host.data());
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  for (Bytes i = 0; i < count; ++i) draws[i] = Bfloat16(normal(generator));
  const Lane lane(device, LaneRole::h2d);
  for (Bytes at = 0; at < bytes; at += host.bytes())
    device.copy(lane.id(), numbers.data() + at, host.data(), std::min(host.bytes(), bytes - at), "numbers");
  device.synchronise_lane(lane.id());
  return numbers;
}

}  // namespace stowage::bench
