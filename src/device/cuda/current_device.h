// CurrentDevice: a device as the calling thread's current one, while it lives or from then on. Its calls are
// made outside of any stream capture.
#pragma once

#include <cuda.h>

#include "src/device/cuda/check.h"

namespace stowage::cuda {

// While it lives, the calling thread may allocate, map, wait and ask events although a stream is being
// captured (cudaStreamCaptureModeRelaxed); otherwise such a call fails and ends captures of the default mode
// on any thread. Where the mode cannot be set, the call that follows is refused as it would have been. The
// mode is set by the driver: the runtime would make a context on the thread's current device for it.
class OutsideCapture {
 public:
  OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;
  ~OutsideCapture();

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the thread's own
  bool exchanged_ = false;
};

class CurrentDevice {
 public:
  // `restores`: the thread's device of before is current again when this dies, where it has a context (making
  // it current would create one). Throws as check.h says.
  CurrentDevice(int ordinal, bool restores, const Doing& doing);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  const OutsideCapture outside_;
  int before_ = -1;  // to become current again; -1: none
};

}  // namespace stowage::cuda
