// VirtualMemory: address space and physical memory of one device, apart, by the driver's cuMem calls.
//
// Every call is all or nothing: what failed half way is undone. Errors as check.h says, out of memory as
// OutOfMemory. One caller at a time, with the device current.
#pragma once

#include <cuda.h>

#include <vector>

#include "src/device/cuda/check.h"
#include "src/device/cuda/driver_api.h"

namespace stowage::cuda {

class VirtualMemory {
 public:
  // Whether the driver and the device can do this at all.
  static bool is_supported(const DriverApi& api, int ordinal);

  VirtualMemory(const DriverApi& api, int ordinal);
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;
  ~VirtualMemory();  // the caller has unmapped and freed everything

  // Sizes and addresses below are multiples of it.
  Bytes granularity() const { return granularity_; }

  void* reserve(Bytes bytes, const Doing& doing);
  void free(void* address, Bytes bytes, const Doing& doing);
  // Fresh memory in pieces of `piece` bytes, the last of which may be shorter: three calls of the driver for
  // each, and one more for all.
  void map(void* address, Bytes bytes, Bytes piece, const Doing& doing);
  // Any number of whole pieces that lie side by side, in one call.
  void unmap(void* address, Bytes bytes, const Doing& doing);

 private:
  using Handle = CUmemGenericAllocationHandle;
  CUmemAllocationProp properties() const;
  void map_piece(CUdeviceptr address, Bytes bytes, const Doing& doing);
  void allow_access(CUdeviceptr address, Bytes bytes, const Doing& doing);

  const DriverApi& api_;
  int ordinal_;
  Bytes granularity_ = 0;
  std::vector<Handle> unreleased_;  // what the driver would not take back yet
};

}  // namespace stowage::cuda
