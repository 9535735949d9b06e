// VirtualMemory: address space and physical memory of one device as separate things, by the driver's
// cuMem calls.
//
// Every call succeeds wholly or undoes its parts. Errors are thrown as check.h says, out of memory as
// OutOfMemory. Requires one caller at a time, with the device current.
#pragma once

#include <cuda.h>

#include <vector>

#include "src/device/cuda/check.h"
#include "src/device/cuda/driver_api.h"

namespace stowage::cuda {

class VirtualMemory {
 public:
  // Whether the driver and the device support virtual memory management.
  static bool is_supported(const DriverApi& api, int ordinal);

  VirtualMemory(const DriverApi& api, int ordinal);
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;
  ~VirtualMemory();  // requires that the caller has unmapped and freed everything

  // Sizes and addresses below are multiples of the granularity.
  Bytes granularity() const { return granularity_; }

  void* reserve(Bytes bytes, const Doing& doing);
  void free(void* address, Bytes bytes, const Doing& doing);
  // Maps fresh memory in pieces of `piece` bytes, the last of which may be shorter: three calls of the driver
  // for each, and one more for all.
  void map(void* address, Bytes bytes, Bytes piece, const Doing& doing);
  // Unmaps any number of adjacent whole pieces in one call.
  void unmap(void* address, Bytes bytes, const Doing& doing);

 private:
  using Handle = CUmemGenericAllocationHandle;
  CUmemAllocationProp properties() const;
  void map_piece(CUdeviceptr address, Bytes bytes, const Doing& doing);
  void allow_access(CUdeviceptr address, Bytes bytes, const Doing& doing);

  const DriverApi& api_;
  int ordinal_;
  Bytes granularity_ = 0;
  std::vector<Handle> unreleased_;  // handles that the driver has not taken back yet
};

}  // namespace stowage::cuda
