// Times single operations on a card. The product makes some choices by fixed rules; these times say what a
// rule costs.
//
// Each function prints lines of JSON, with seconds that are medians of device time. They take the device's
// memory as they need it and give it back. `small`: sizes for a fake runtime, whose times mean nothing.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "stowage/device.h"

namespace stowage::bench {

inline constexpr int repetitions = 9;  // of what is timed, behind one that does not count

using PrintTimes = std::function<void(const nlohmann::ordered_json& line)>;

// attention_backward of the models that gpu_check trains, in workspaces for 512 tiles, for 2,048 and for all,
// and whether each writes the first one's bits.
void time_slices(Device& device, bool small, const PrintTimes& print);

// Each product of these models by every algorithm that cuBLASLt's heuristic offers; the first is the one that
// kernels/cuda/gemm.cpp takes.
void time_products(Device& device, bool small, const PrintTimes& print);

// A request and a release that CachingAllocator's cache serves, and requests that map new memory; the same of
// cudaMallocAsync. Host time.
void time_allocator(Device& device, bool small, const PrintTimes& print);

}  // namespace stowage::bench
