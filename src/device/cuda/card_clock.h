// CardClock: relates the card's clock to the host's, for times between events of streams and of host lanes.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>

#include "src/base/mutex.h"
#include "src/device/cuda/check.h"

namespace stowage::cuda {

using HostClock = std::chrono::steady_clock;

// Requires that the card is current in every call.
class CardClock {
 public:
  explicit CardClock(const Doing& what);
  CardClock(const CardClock&) = delete;
  CardClock& operator=(const CardClock&) = delete;
  ~CardClock();

  // Sets `at` to when a timed event passed on its stream. The error is about 10 microseconds, and 10 more
  // for each second since. If cudaEventElapsedTime does not succeed, its answer is returned and `at` is
  // left alone.
  cudaError_t time_of(cudaEvent_t event, HostClock::time_point& at, const Doing& what);

 private:
  void end() noexcept STOWAGE_REQUIRES(mutex_);
  HostClock::time_point pass(cudaEvent_t event, const Doing& what) STOWAGE_REQUIRES(mutex_);
  void read_both(const Doing& what) STOWAGE_REQUIRES(mutex_);

  Mutex mutex_;
  cudaStream_t stream_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  cudaEvent_t now_ STOWAGE_GUARDED_BY(mutex_) = nullptr;  // event that passed at host_now_
  cudaEvent_t other_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  HostClock::time_point host_now_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::cuda
