// CardClock: the host's clock beside the card's, for times between what streams and what host lanes did.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>

#include "src/base/mutex.h"
#include "src/device/cuda/check.h"

namespace stowage::cuda {

using HostClock = std::chrono::steady_clock;

// Calls with the card current.
class CardClock {
 public:
  explicit CardClock(const Doing& what);
  CardClock(const CardClock&) = delete;
  CardClock& operator=(const CardClock&) = delete;
  ~CardClock();

  // When a stream's event, which has a time, passed: to some 10 microseconds. `at` is left as it is where
  // cudaEventElapsedTime has another answer than success, which is returned.
  cudaError_t time_of(cudaEvent_t event, HostClock::time_point& at, const Doing& what);

 private:
  void read_both(const Doing& what) STOWAGE_REQUIRES(mutex_);

  Mutex mutex_;
  cudaStream_t stream_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  cudaEvent_t now_ STOWAGE_GUARDED_BY(mutex_) = nullptr;  // passed at host_now_
  HostClock::time_point host_now_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::cuda
