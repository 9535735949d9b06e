#include "src/device/cuda/card_clock.h"

namespace stowage::cuda {

CardClock::CardClock(const Doing& what) {
  const MutexLock lock(mutex_);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", what);
  const cudaError_t made = cudaEventCreateWithFlags(&now_, cudaEventDefault);
  if (made != cudaSuccess) cudaStreamDestroy(stream_);
  check(made, "cudaEventCreateWithFlags", what);
}

CardClock::~CardClock() {
  const MutexLock lock(mutex_);
  cudaEventDestroy(now_);
  cudaStreamDestroy(stream_);
}

// Again where the thread or the card came to it late; the last of some has to do.
void CardClock::read_both(const Doing& what) {
  constexpr auto prompt = std::chrono::microseconds(30);
  for (int tries = 0; tries < 5; ++tries) {
    const HostClock::time_point begin = HostClock::now();
    check(cudaEventRecord(now_, stream_), "cudaEventRecord", what);
    cudaError_t state = cudaErrorNotReady;
    while (state == cudaErrorNotReady) state = cudaEventQuery(now_);
    cudaGetLastError();  // not being ready is no failure, but the runtime keeps it as one
    check(state, "cudaEventQuery", what);
    const HostClock::time_point end = HostClock::now();
    host_now_ = begin + (end - begin) / 2;
    if (end - begin < prompt) return;
  }
}

// The two clocks part by some parts of 100,000.
cudaError_t CardClock::time_of(cudaEvent_t event, HostClock::time_point& at, const Doing& what) {
  constexpr auto too_old = std::chrono::seconds(1);
  const MutexLock lock(mutex_);
  if (HostClock::now() - host_now_ > too_old) read_both(what);
  float milliseconds = 0;
  const cudaError_t state = cudaEventElapsedTime(&milliseconds, now_, event);
  if (state == cudaSuccess)
    at = host_now_ + std::chrono::duration_cast<HostClock::duration>(
                         std::chrono::duration<double, std::milli>(milliseconds));
  return state;
}

}  // namespace stowage::cuda
