#include "allocator/interpose/scopes.h"

#include "allocator/interpose/driver.h"

namespace stowage::interpose {
namespace {

constexpr int attempts = 2;  // attempts to restore the thread's state

}  // namespace

CUcontext current_context() {
  CUcontext context = nullptr;
  call_real<decltype(cuCtxGetCurrent)>(Entry::ctx_get_current, &context);
  return context;
}

InContext::InContext(CUcontext context) {
  if (current_context() == context) return;
  result_ = call_real<decltype(cuCtxPushCurrent_v2)>(Entry::ctx_push_current, context);
  pushed_ = result_ == CUDA_SUCCESS;
}

InContext::~InContext() {
  CUcontext popped = nullptr;
  for (int attempt = 0; pushed_ && attempt < attempts; ++attempt) {
    pushed_ = call_real<decltype(cuCtxPopCurrent_v2)>(Entry::ctx_pop_current, &popped) != CUDA_SUCCESS;
  }
}

OutsideCapture::OutsideCapture() {
  exchanged_ = call_real<decltype(cuThreadExchangeStreamCaptureMode)>(Entry::thread_exchange_capture_mode,
                                                                      &mode_) == CUDA_SUCCESS;
}

OutsideCapture::~OutsideCapture() {
  for (int attempt = 0; exchanged_ && attempt < attempts; ++attempt) {
    exchanged_ = call_real<decltype(cuThreadExchangeStreamCaptureMode)>(Entry::thread_exchange_capture_mode,
                                                                        &mode_) != CUDA_SUCCESS;
  }
}

}  // namespace stowage::interpose
