#include "src/device/cuda/card_clock.h"

#include <thread>
#include <utility>

namespace stowage::cuda {

CardClock::CardClock(const Doing& what) {
  const MutexLock lock(mutex_);
  try {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", what);
    for (cudaEvent_t* const event : {&now_, &other_})
      check(cudaEventCreateWithFlags(event, cudaEventDefault), "cudaEventCreateWithFlags", what);
  } catch (...) {
    end();
    throw;
  }
}

CardClock::~CardClock() {
  const MutexLock lock(mutex_);
  end();
}

void CardClock::end() noexcept {
  for (const cudaEvent_t event : {now_, other_})
    if (event != nullptr) cudaEventDestroy(event);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

// Records the event, waits until it has passed, and returns the host's time.
HostClock::time_point CardClock::pass(cudaEvent_t event, const Doing& what) {
  check(cudaEventRecord(event, stream_), "cudaEventRecord", what);
  cudaError_t state = cudaEventQuery(event);
  while (state == cudaErrorNotReady) {
    cudaGetLastError();  // clears the runtime's last error: cudaErrorNotReady is none
    std::this_thread::yield();
    state = cudaEventQuery(event);
  }
  check(state, "cudaEventQuery", what);
  return HostClock::now();
}

// Takes the quickest of several readings, since the thread or the card may be late in any.
void CardClock::read_both(const Doing& what) {
  constexpr int readings = 3;
  HostClock::duration least = HostClock::duration::max();
  host_now_ = {};  // no reading yet
  for (int i = 0; i < readings; ++i) {
    const HostClock::time_point begin = HostClock::now();
    const HostClock::duration took = pass(other_, what) - begin;
    if (took >= least) continue;
    least = took;
    std::swap(now_, other_);
    host_now_ = begin + took / 2;
  }
}

// The two clocks drift apart by some 10 microseconds in a second.
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
