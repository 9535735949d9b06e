// CurrentDevice: a device as the calling thread's current one, while it lives or from then on.
#pragma once

#include "src/device/cuda/check.h"

namespace stowage::cuda {

class CurrentDevice {
 public:
  // `restores`: the thread's device of before is current again when this dies, where it has a context (making
  // it current would create one). Throws as check.h says.
  CurrentDevice(int ordinal, bool restores, const Doing& doing);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  int before_ = -1;  // to become current again; -1: none
};

}  // namespace stowage::cuda
