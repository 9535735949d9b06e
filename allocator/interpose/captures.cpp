#include "allocator/interpose/captures.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

#include "allocator/interpose/driver.h"
#include "allocator/interpose/scopes.h"

namespace stowage::interpose {

Captures::Key Captures::key_of(Entry entry, CUstream stream) {
  const bool own = stream == CU_STREAM_PER_THREAD || (stream == nullptr && entry_point(entry).per_thread);
  return own ? Key{CU_STREAM_PER_THREAD, syscall(SYS_gettid)} : Key{stream, 0};
}

void Captures::note(Entry entry, CUstream stream) { captured_[key_of(entry, stream)] = current_context(); }

// A failed call may have ended the capture or not, so the driver is asked.
void Captures::may_have_ended(Entry entry, CUstream stream) {
  const Entry asked =
      entry_point(entry).per_thread ? Entry::stream_is_capturing_ptsz : Entry::stream_is_capturing;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  call_real<decltype(cuStreamIsCapturing)>(asked, stream, &status);
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) return;
  const MutexLock lock(mutex_);
  captured_.erase(key_of(entry, stream));
}

void Captures::stream_gone(CUstream stream) {
  const MutexLock lock(mutex_);
  captured_.erase({stream, 0});
}

void Captures::context_gone(CUcontext context) {
  const MutexLock lock(mutex_);
  std::erase_if(captured_, [&](const auto& capture) { return capture.second == context; });
}

CUresult Captures::wait_for_context() {
  {
    const MutexLock lock(mutex_);
    if (beginning_ > 0 || !captured_.empty()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ++waiting_;
  }
  const CUresult result = call_real<decltype(cuCtxSynchronize)>(Entry::ctx_synchronize);
  const MutexLock lock(mutex_);
  if (--waiting_ == 0) changed_.notify_all();
  return result;
}

void Captures::after_fork_in_child() {
  waiting_ = beginning_ = 0;
  std::construct_at(&changed_);  // threads of the parent may have waited for it
  captured_.clear();
  mutex_.unlock();
}

Captures& captures() {
  static Captures& only = *new Captures;  // outlives every thread
  return only;
}

}  // namespace stowage::interpose
