// libcuda: allocation by every call that has one, pools, and memory of other processes.
#include "tests/fake_cuda/driver_memory.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/driver_objects.h"
#include "tests/fake_cuda/driver_streams.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/virtual_memory.h"

using fake_cuda::Allocated;
using fake_cuda::as_pointer;
using fake_cuda::current_context;
using fake_cuda::driver_call;
using fake_cuda::give;
using fake_cuda::Kind;
using fake_cuda::Memory;
using fake_cuda::objects;
using fake_cuda::primary_context;
using fake_cuda::VirtualMemory;

namespace {

constexpr std::size_t row_alignment = 512;

CUresult allocate(CUdeviceptr* address, Allocated what) {
  if (address == nullptr || what.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* const memory = Memory::get().allocate(Kind::device, what.bytes);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  const std::lock_guard lock(objects().mutex);
  objects().allocated[*address] = what;
  return CUDA_SUCCESS;
}

CUresult allocate_ordered(CUdeviceptr* address, std::size_t bytes) {
  return allocate(address, {bytes, nullptr});
}

bool forget(CUdeviceptr address, bool opened) {
  const std::lock_guard lock(objects().mutex);
  const auto found = objects().allocated.find(address);
  if (found == objects().allocated.end() || found->second.opened != opened) return false;
  objects().allocated.erase(found);
  return true;
}

CUresult release(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  if (!forget(address, false)) return CUDA_ERROR_INVALID_VALUE;
  return Memory::get().release(Kind::device, as_pointer(address)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct Found {
  CUdeviceptr start = 0;
  Allocated what;
};

std::optional<Found> find(CUdeviceptr address) {
  const std::lock_guard lock(objects().mutex);
  auto after = objects().allocated.upper_bound(address);
  if (after == objects().allocated.begin()) return std::nullopt;
  const auto& [start, what] = *std::prev(after);
  if (address - start >= what.bytes) return std::nullopt;
  return Found{start, what};
}

// Of what is mapped or page-locked, too: for the program's own that is the host's.
std::optional<Found> find_any(CUdeviceptr address, bool& on_host) {
  on_host = false;
  if (const auto found = find(address)) return found;
  const auto range = Memory::get().range_of(as_pointer(address));
  if (!range) return std::nullopt;
  on_host = range->kind == Kind::pinned || VirtualMemory::get().is_of_host(range->start, range->bytes);
  return Found{range->start, {range->bytes, primary_context()}};
}

CUresult attribute_of(CUdeviceptr address, CUpointer_attribute attribute, void* data) {
  bool on_host = false;
  const auto found = find_any(address, on_host);
  if (data == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = on_host ? -1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *static_cast<void**>(data) = on_host ? as_pointer(address) : nullptr;
      return on_host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(data) = found->what.managed ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = found->start;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(data) = found->what.bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What an exported handle holds.
struct Shared {
  pid_t process = 0;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};
static_assert(sizeof(Shared) <= sizeof(CUipcMemHandle));

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  return driver_call(__func__, [&] { return allocate(address, {bytes, current_context()}); });
}

// As a driver might, it calls a function that it exports through the loader.
CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width, std::size_t height,
                            unsigned element_bytes) {
  return driver_call(__func__, [&] {
    if (pitch == nullptr || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *pitch = (width + row_alignment - 1) / row_alignment * row_alignment;
    const auto allocate_linear =
        reinterpret_cast<decltype(&cuMemAlloc_v2)>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    return allocate_linear == nullptr ? CUDA_ERROR_NOT_FOUND : allocate_linear(address, *pitch * height);
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  return driver_call(__func__, [&] {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
    return allocate(address, {bytes, current_context(), true});
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return driver_call(__func__, [&] {
    return fake_cuda::driver_stream_known(stream) ? allocate_ordered(address, bytes)
                                                  : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return driver_call(__func__, [&] {
    return fake_cuda::driver_stream_known(stream) ? allocate_ordered(address, bytes)
                                                  : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return driver_call(__func__, [&] {
    const bool known = pool == reinterpret_cast<CUmemoryPool>(&objects().default_pool) ||
                       objects().pools.contains(reinterpret_cast<char*>(pool));
    if (!known || !fake_cuda::driver_stream_known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    return allocate_ordered(address, bytes);
  });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
  return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return driver_call(__func__, [&] { return release(address); });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return driver_call(__func__, [&] {
    if (!fake_cuda::driver_stream_known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    return fake_cuda::driver_stream_captures(stream) ? CUDA_SUCCESS : release(address);
  });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) { return cuMemFreeAsync(address, stream); }

CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, std::size_t* bytes, CUdeviceptr address) {
  return driver_call(__func__, [&] {
    const auto found = find(address);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (start != nullptr) *start = found->start;
    if (bytes != nullptr) *bytes = found->what.bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return driver_call(__func__, [&] { return attribute_of(address, attribute, data); });
}

// Those that an address has not are nothing.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  return driver_call(__func__, [&] {
    if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) attribute_of(address, attributes[i], data[i]);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  return driver_call(__func__, [&] {
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (fake_cuda::capture_forbids_waiting()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *address = Memory::get().allocate(Kind::pinned, bytes);
    if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::lock_guard lock(objects().mutex);
    objects().pinned[*address] = current_context();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* to, void* address, unsigned) {
  return driver_call(__func__, [&] {
    const auto range = Memory::get().range_of(address);
    if (!range || range->kind != Kind::pinned) return CUDA_ERROR_INVALID_VALUE;
    return give(to, reinterpret_cast<CUdeviceptr>(address));
  });
}

CUresult cuMemFreeHost(void* address) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    if (objects().pinned.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
    return Memory::get().release(Kind::pinned, address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  return driver_call(__func__, [&] {
    if (pool == nullptr || props == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(objects().mutex);
    *pool = reinterpret_cast<CUmemoryPool>(*objects().pools.insert(new char).first);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    char* const known = reinterpret_cast<char*>(pool);
    if (objects().pools.erase(known) == 0) return CUDA_ERROR_INVALID_VALUE;
    delete known;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) {
  return driver_call(__func__,
                     [&] { return give(pool, reinterpret_cast<CUmemoryPool>(&objects().default_pool)); });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return driver_call(__func__, [&] {
    const auto found = find(address);
    if (handle == nullptr || !found || found->what.context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Shared shared{getpid(), found->start, found->what.bytes};
    std::memcpy(handle, &shared, sizeof(shared));
    return CUDA_SUCCESS;
  });
}

// The other process's bytes as they are now: a copy, where a card would show the memory itself.
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  return driver_call(__func__, [&] {
    Shared shared;
    std::memcpy(static_cast<void*>(&shared), &handle, sizeof(shared));
    void* const view = shared.process == getpid() ? nullptr : std::malloc(shared.bytes);
    if (view == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const iovec to{view, shared.bytes}, from{as_pointer(shared.address), shared.bytes};
    if (process_vm_readv(shared.process, &to, 1, &from, 1, 0) != static_cast<ssize_t>(shared.bytes)) {
      std::free(view);
      return CUDA_ERROR_MAP_FAILED;
    }
    *address = reinterpret_cast<CUdeviceptr>(view);
    const std::lock_guard lock(objects().mutex);
    objects().allocated[*address] = {shared.bytes, nullptr, false, true};
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return driver_call(__func__, [&] {
    if (!forget(address, true)) return CUDA_ERROR_INVALID_VALUE;
    std::free(as_pointer(address));
    return CUDA_SUCCESS;
  });
}
}

// What the API was before 64-bit addresses, and what it may become: programs that ask for these versions get
// them.
CUresult fake_mem_alloc_v1(unsigned*, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult fake_mem_alloc_of_the_future(CUdeviceptr*, std::size_t, void*) { return CUDA_ERROR_NOT_SUPPORTED; }

// The same under older names.
CUresult fake_stream_destroy_v1(CUstream stream) { return cuStreamDestroy_v2(stream); }
CUresult fake_ipc_open_v1(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}
