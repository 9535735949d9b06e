// The driver's functions for virtual memory, found at run time: no program is ever linked to the driver.
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

  // Not of virtual memory; may be null where that is complete.
  decltype(&cuDevicePrimaryCtxGetState) device_primary_ctx_get_state = nullptr;
  decltype(&cuThreadExchangeStreamCaptureMode) thread_exchange_stream_capture_mode = nullptr;

  bool complete() const;
};

// Looked up once, in libcuda.so.1. What is not there is null. Thread-safe.
const DriverApi& driver_api();

}  // namespace stowage::cuda
