// Captures: the streams that are being captured. While there are any, the interposer waits for no context:
// the driver would refuse that, in any mode of the thread, and end the captures.
#pragma once

#include <cuda.h>

#include <map>
#include <utility>

#include "allocator/interpose/entry_points.h"
#include "src/base/mutex.h"

namespace stowage::interpose {

// Thread-safe. No capture begins while a thread waits for a context, and no thread starts to
// wait while one begins.
class Captures {
 public:
  // `call` is the driver's function that begins a capture of `stream`, by the entry `entry`.
  template <class Call>
  CUresult begin(Entry entry, CUstream stream, Call call) {
    const MutexLock lock(mutex_);
    ++beginning_;
    while (waiting_ > 0) changed_.wait(mutex_);
    --beginning_;
    const CUresult result = call();
    if (result == CUDA_SUCCESS) note(entry, stream);
    return result;
  }
  // Called after the driver's function that ends a capture, which may have failed.
  void may_have_ended(Entry entry, CUstream stream);
  // Called when a stream or context has gone, with its captures.
  void stream_gone(CUstream stream);
  void context_gone(CUcontext context);

  // Waits for the work of the current context. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: some stream is being
  // captured, or is about to be; the driver was not asked.
  CUresult wait_for_context();

  // The lock is held while the process forks. The child has no captures.
  void before_fork() STOWAGE_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void after_fork_in_parent() STOWAGE_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  void after_fork_in_child() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;

 private:
  // A stream, and the thread if the stream is the thread's own, else 0.
  using Key = std::pair<CUstream, long>;
  static Key key_of(Entry entry, CUstream stream);
  void note(Entry entry, CUstream stream) STOWAGE_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  unsigned waiting_ STOWAGE_GUARDED_BY(mutex_) = 0;
  unsigned beginning_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::map<Key, CUcontext> captured_ STOWAGE_GUARDED_BY(mutex_);
};

Captures& captures();

}  // namespace stowage::interpose
