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

  // When a timed event passed on its stream. It is some 10 microseconds off, and 10 more for each second that
  // has gone by since. Where cudaEventElapsedTime answers anything but success, that is returned and `at` is
  // left as it is.
  cudaError_t time_of(cudaEvent_t event, HostClock::time_point& at, const Doing& what);

 private:
  void end() noexcept STOWAGE_REQUIRES(mutex_);
  HostClock::time_point pass(cudaEvent_t event, const Doing& what) STOWAGE_REQUIRES(mutex_);
  void read_both(const Doing& what) STOWAGE_REQUIRES(mutex_);

  Mutex mutex_;
  cudaStream_t stream_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  cudaEvent_t now_ STOWAGE_GUARDED_BY(mutex_) = nullptr;  // passed at host_now_
  cudaEvent_t other_ STOWAGE_GUARDED_BY(mutex_) = nullptr;
  HostClock::time_point host_now_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::cuda
