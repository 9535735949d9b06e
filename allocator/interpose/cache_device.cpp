#include "allocator/interpose/cache_device.h"

#include <algorithm>
#include <string>

#include "allocator/interpose/driver.h"
#include "stowage/error.h"

namespace stowage::interpose {
namespace {

constexpr Bytes smallest_granule = 2_MiB;  // least unit in which the allocator gives memory back

void check_call(CUresult result, const char* name, Bytes bytes = 0) {
  if (result == CUDA_SUCCESS) return;
  const std::string what = std::string(name) + " failed with error " + std::to_string(result);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(what, bytes, 0);
  throw DeviceError(what, name);
}

// Undoes a call after a later one failed; tries twice, since nobody could do it later.
template <class Call>
CUresult insist(Call call) {
  const CUresult result = call();
  return result == CUDA_SUCCESS ? result : call();
}

void unmap_pieces(CUdeviceptr address, Bytes bytes) {
  insist([&] { return call_real<decltype(cuMemUnmap)>(Entry::mem_unmap, address, bytes); });
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
void CacheDevice::map_piece(CUdeviceptr address, Bytes bytes) {
  const CUmemAllocationProp prop = on_card(device_);
  CUmemGenericAllocationHandle handle = 0;
  check_call(call_real<decltype(cuMemCreate)>(Entry::mem_create, &handle, bytes, &prop, 0ULL), "cuMemCreate",
             bytes);
  const CUresult mapped =
      call_real<decltype(cuMemMap)>(Entry::mem_map, address, bytes, std::size_t{0}, handle, 0ULL);
  const CUresult released =
      insist([&] { return call_real<decltype(cuMemRelease)>(Entry::mem_release, handle); });
  if (mapped == CUDA_SUCCESS && released != CUDA_SUCCESS) unmap_pieces(address, bytes);
  check_call(mapped, "cuMemMap", bytes);
  check_call(released, "cuMemRelease", bytes);
}

void CacheDevice::map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) {
  const CUdeviceptr begin = place_in(range, offset);
  Bytes done = 0;
  try {
    for (; done < bytes; done += std::min(piece, bytes - done))
      map_piece(begin + done, std::min(piece, bytes - done));
    CUmemAccessDesc access{};
    access.location = on_card(device_).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check_call(
        call_real<decltype(cuMemSetAccess)>(Entry::mem_set_access, begin, bytes, &access, std::size_t{1}),
        "cuMemSetAccess", bytes);
  } catch (...) {
    if (done > 0) unmap_pieces(begin, done);
    throw;
  }
}

void CacheDevice::unmap(void* range, Bytes offset, Bytes bytes) {
  check_call(call_real<decltype(cuMemUnmap)>(Entry::mem_unmap, place_in(range, offset), bytes), "cuMemUnmap");
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
