#include "allocator/interpose/cache_device.h"

#include <algorithm>
#include <string>

#include "allocator/interpose/driver.h"
#include "stowage/error.h"

namespace stowage::interpose {
namespace {

constexpr Bytes smallest_granule = 2_MiB;  // in which the allocator takes memory back

void check_call(CUresult result, const char* name, Bytes bytes = 0) {
  if (result == CUDA_SUCCESS) return;
  const std::string what = std::string(name) + " failed with error " + std::to_string(result);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(what, bytes, 0);
  throw DeviceError(what, name);
}

// What is taken back where another call failed: nobody could do it later.
template <class Call>
CUresult insist(Call call) {
  const CUresult result = call();
  return result == CUDA_SUCCESS ? result : call();
}

CUresult unmap_granule(CUdeviceptr address, Bytes bytes) {
  return insist([&] {
    return call_real<decltype(cuMemUnmap)>(Entry::mem_unmap, address, static_cast<std::size_t>(bytes));
  });
}

[[noreturn]] void refuse_call(const char* name) {
  throw DeviceError(std::string(name) + " is none of the calls of a cache's device", name);
}

CUmemAllocationProp on_card(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

CUdeviceptr place_in(void* range, Bytes offset) { return reinterpret_cast<CUdeviceptr>(range) + offset; }

}  // namespace

CacheDevice::CacheDevice(CUdevice device, Bytes total) : device_(device), total_(total) {
  const CUmemAllocationProp prop = on_card(device);
  std::size_t granularity = 0;
  check_call(
      call_real<decltype(cuMemGetAllocationGranularity)>(Entry::mem_get_allocation_granularity, &granularity,
                                                         &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      "cuMemGetAllocationGranularity");
  granularity_ = std::max<Bytes>(smallest_granule, granularity);
}

void* CacheDevice::reserve(Bytes bytes) {
  CUdeviceptr address = 0;
  check_call(call_real<decltype(cuMemAddressReserve)>(Entry::mem_address_reserve, &address,
                                                      static_cast<std::size_t>(bytes), std::size_t{0},
                                                      CUdeviceptr{0}, 0ULL),
             "cuMemAddressReserve", bytes);
  void* const range = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  const MutexLock lock(mutex_);
  reserved_[range] = bytes;
  return range;
}

void CacheDevice::unreserve(void* address) {
  const MutexLock lock(mutex_);
  const auto found = reserved_.find(address);
  if (found == reserved_.end()) return;
  check_call(call_real<decltype(cuMemAddressFree)>(Entry::mem_address_free, place_in(address, 0),
                                                   static_cast<std::size_t>(found->second)),
             "cuMemAddressFree");
  reserved_.erase(found);
}

// The mapping keeps the memory, so the handle goes at once. A call that fails leaves nothing.
void CacheDevice::map_granule(CUdeviceptr address) {
  const CUmemAllocationProp prop = on_card(device_);
  const auto bytes = static_cast<std::size_t>(granularity_);
  CUmemGenericAllocationHandle handle = 0;
  check_call(call_real<decltype(cuMemCreate)>(Entry::mem_create, &handle, bytes, &prop, 0ULL), "cuMemCreate",
             granularity_);
  CUresult result =
      call_real<decltype(cuMemMap)>(Entry::mem_map, address, bytes, std::size_t{0}, handle, 0ULL);
  const bool mapped = result == CUDA_SUCCESS;
  if (mapped) {
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result =
        call_real<decltype(cuMemSetAccess)>(Entry::mem_set_access, address, bytes, &access, std::size_t{1});
  }
  const CUresult released =
      insist([&] { return call_real<decltype(cuMemRelease)>(Entry::mem_release, handle); });
  if (result == CUDA_SUCCESS) result = released;
  if (result != CUDA_SUCCESS && mapped) unmap_granule(address, granularity_);
  check_call(result, "cuMemMap", granularity_);
}

// By granules, since a mapping is unmapped as a whole.
void CacheDevice::map(void* range, Bytes offset, Bytes bytes) {
  Bytes done = 0;
  try {
    for (; done < bytes; done += granularity_) map_granule(place_in(range, offset + done));
  } catch (...) {
    while (done > 0) {
      done -= granularity_;
      unmap_granule(place_in(range, offset + done), granularity_);
    }
    throw;
  }
}

void CacheDevice::unmap(void* range, Bytes offset, Bytes bytes) {
  for (Bytes done = 0; done < bytes; done += granularity_) {
    check_call(call_real<decltype(cuMemUnmap)>(Entry::mem_unmap, place_in(range, offset + done),
                                               static_cast<std::size_t>(granularity_)),
               "cuMemUnmap");
  }
}

void CacheDevice::record(EventId event, LaneId id) {
  static_cast<void>(event);
  static_cast<void>(id);
}

void CacheDevice::wait(LaneId id, EventId event) {
  static_cast<void>(id);
  static_cast<void>(event);
}

bool CacheDevice::query(EventId event) {
  static_cast<void>(event);
  return true;
}

void* CacheDevice::allocate(MemoryKind, Bytes) { refuse_call("allocate"); }
void CacheDevice::release(MemoryKind, void*) { refuse_call("release"); }
LaneId CacheDevice::create_lane(LaneRole) { refuse_call("create_lane"); }
void CacheDevice::destroy_lane(LaneId) { refuse_call("destroy_lane"); }
double CacheDevice::elapsed_seconds(EventId, EventId) { refuse_call("elapsed_seconds"); }
void CacheDevice::copy(LaneId, void*, const void*, Bytes, std::string_view) { refuse_call("copy"); }
void CacheDevice::launch(LaneId, const Launch&) { refuse_call("launch"); }
void CacheDevice::discard(LaneId, void*, Bytes) { refuse_call("discard"); }

}  // namespace stowage::interpose
