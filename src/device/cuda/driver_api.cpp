#include "src/device/cuda/driver_api.h"

#include <dlfcn.h>

namespace stowage::cuda {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

DriverApi load() {
  DriverApi api;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) return api;
  find(library, "cuDeviceGetAttribute", api.device_get_attribute);
  find(library, "cuMemGetAllocationGranularity", api.mem_get_allocation_granularity);
  find(library, "cuMemAddressReserve", api.mem_address_reserve);
  find(library, "cuMemAddressFree", api.mem_address_free);
  find(library, "cuMemCreate", api.mem_create);
  find(library, "cuMemRelease", api.mem_release);
  find(library, "cuMemMap", api.mem_map);
  find(library, "cuMemUnmap", api.mem_unmap);
  find(library, "cuMemSetAccess", api.mem_set_access);
  find(library, "cuStreamBatchMemOp_v2", api.stream_batch_mem_op);
  find(library, "cuDevicePrimaryCtxGetState", api.device_primary_ctx_get_state);
  find(library, "cuThreadExchangeStreamCaptureMode", api.thread_exchange_stream_capture_mode);
  return api;
}

}  // namespace

bool DriverApi::has_virtual_memory() const {
  return device_get_attribute != nullptr && mem_get_allocation_granularity != nullptr &&
         mem_address_reserve != nullptr && mem_address_free != nullptr && mem_create != nullptr &&
         mem_release != nullptr && mem_map != nullptr && mem_unmap != nullptr && mem_set_access != nullptr;
}

const DriverApi& driver_api() {
  static const DriverApi api = load();
  return api;
}

}  // namespace stowage::cuda
