// Functions of the driver that the runtime lacks, found at run time: no program is linked to the driver.
#pragma once

#include <cuda.h>

namespace stowage::cuda {

struct DriverApi {
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&cuMemAddressFree) mem_address_free = nullptr;
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;

  // Makes a stream write words of memory and wait for them. Drivers of CUDA 12 or later have it.
  decltype(&cuStreamBatchMemOp) stream_batch_mem_op = nullptr;

  // Null if the driver lacks the function.
  decltype(&cuDevicePrimaryCtxGetState) device_primary_ctx_get_state = nullptr;
  decltype(&cuThreadExchangeStreamCaptureMode) thread_exchange_stream_capture_mode = nullptr;

  bool has_virtual_memory() const;
};

// The functions are looked up once, in libcuda.so.1. Missing functions are null. Thread-safe.
const DriverApi& driver_api();

}  // namespace stowage::cuda
