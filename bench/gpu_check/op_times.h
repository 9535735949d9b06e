// Times single operations on a card. The product makes some choices by fixed rules. These times say what such
// a rule costs.
//
// Each function prints lines of JSON, with seconds that are medians of device time. They take the device's
// memory as they need it and give it back. `small`: uses sizes for a fake runtime, whose times mean nothing.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "stowage/device.h"

namespace stowage::bench {

inline constexpr int repetitions = 9;  // timed, after one that does not count

using PrintTimes = std::function<void(const nlohmann::ordered_json& line)>;

// Times attention_backward of the models that gpu_check trains, with workspaces for 512 tiles, for 2,048 and
// for all. Also says whether the gradients have the same bits with each workspace as with the first.
void time_slices(Device& device, bool small, const PrintTimes& print);

// Times each product of these models with every algorithm that cuBLASLt's heuristic offers.
// kernels/cuda/gemm.cpp takes the first algorithm.
void time_products(Device& device, bool small, const PrintTimes& print);

// Times a request and a release that CachingAllocator's cache serves, and requests that map new memory. Times
// the same for cudaMallocAsync. All are host times.
void time_allocator(Device& device, bool small, const PrintTimes& print);

}  // namespace stowage::bench
