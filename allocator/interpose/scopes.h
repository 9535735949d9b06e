// Scopes of a thread's calls to the driver.
#pragma once

#include <cuda.h>

namespace stowage::interpose {

CUcontext current_context();  // null: the thread has no context

// Makes `context` current. False: the driver does not know the context.
class InContext {
 public:
  explicit InContext(CUcontext context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  explicit operator bool() const { return result_ == CUDA_SUCCESS; }
  CUresult result() const { return result_; }

 private:
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

// Within the scope, calls that the program did not make cannot end a capture of its streams.
class OutsideCapture {
 public:
  OutsideCapture();
  ~OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exchanged_ = false;
};

}  // namespace stowage::interpose
