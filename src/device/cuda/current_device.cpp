#include "src/device/cuda/current_device.h"

#include "src/device/cuda/driver_api.h"

namespace stowage::cuda {
namespace {

// True where nobody can tell.
bool may_have_context(int ordinal) {
  const auto ask = driver_api().device_primary_ctx_get_state;
  unsigned flags = 0;
  int active = 0;
  return ask == nullptr || ask(ordinal, &flags, &active) != CUDA_SUCCESS || active != 0;
}

}  // namespace

OutsideCapture::OutsideCapture() {
  const auto exchange = driver_api().thread_exchange_stream_capture_mode;
  exchanged_ = exchange != nullptr && exchange(&mode_) == CUDA_SUCCESS;
}

// Tried twice: the thread should not stay as it is.
OutsideCapture::~OutsideCapture() {
  for (int attempt = 0; exchanged_ && attempt < 2; ++attempt)
    exchanged_ = driver_api().thread_exchange_stream_capture_mode(&mode_) != CUDA_SUCCESS;
}

CurrentDevice::CurrentDevice(int ordinal, bool restores, const Doing& doing) {
  int now = ordinal;
  if (restores) check(cudaGetDevice(&now), "cudaGetDevice", doing);
  check(cudaSetDevice(ordinal), "cudaSetDevice", doing);
  if (now != ordinal && may_have_context(now)) before_ = now;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace stowage::cuda
