// Resources that a compute lane of a CUDA device owns beside its stream; kernels find them by the stream. All
// compute work of a lane is in stream order, so its kernels share the scratch.
//
// `lane_resources` is thread-safe. Its result lives as long as the lane, and one thread at a time uses it, as
// for a lane.
#pragma once

#include <memory>

#include "stowage/bytes.h"

namespace stowage::cuda {

struct LaneResources {
  using State = std::unique_ptr<void, void (*)(void*)>;

  LaneResources(int device_ordinal, Bytes scratch_size);  // enqueues nothing; throws as check.h says
  LaneResources(const LaneResources&) = delete;
  LaneResources& operator=(const LaneResources&) = delete;
  ~LaneResources();

  int ordinal = 0;
  void* stream = nullptr;   // cudaStream_t of the lane
  void* scratch = nullptr;  // device memory, 256-byte aligned; null if scratch_bytes is 0
  Bytes scratch_bytes = 0;
  bool counts_from_zero = false;  // the count of finished blocks (kernels/cuda/launch.h) was set to 0
  void* cublas_lt = nullptr;      // cublasLtHandle_t
  // State of the attention kernels: empty until they fill it; destroyed before the stream.
  State attention{nullptr, [](void*) {}};
};

// Throws InvalidInput for a stream that belongs to no compute lane.
LaneResources& lane_resources(void* stream);

// Fill the table behind lane_resources; called by the device.
void register_lane(LaneResources& resources);
void unregister_lane(void* stream) noexcept;

}  // namespace stowage::cuda
