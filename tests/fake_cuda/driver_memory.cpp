// libcuda: allocation by every call that has one, pools, memory of other processes, and contexts, which take
// along what was allocated in them.
#include "tests/fake_cuda/driver_memory.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "tests/fake_cuda/capture.h"
#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/driver_streams.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/virtual_memory.h"

using fake_cuda::driver_call;
using fake_cuda::give;
using fake_cuda::Kind;
using fake_cuda::Memory;
using fake_cuda::State;
using fake_cuda::VirtualMemory;

namespace {

constexpr std::size_t row_alignment = 512;

void* as_pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

struct Allocated {
  std::size_t bytes = 0;
  CUcontext context = nullptr;  // null: of a pool
  bool managed = false;
  bool opened = false;  // another process's
};

// Contexts and pools are addresses of bytes that nobody looks into.
struct Objects {
  std::mutex mutex;
  std::map<CUdeviceptr, Allocated> allocated;
  std::map<void*, CUcontext> pinned;  // page-locked memory, and the context that takes it along
  std::set<char*> contexts, pools;
  char primary = 0, default_pool = 0;
  int primary_users = 0;
};

Objects& objects() {
  static Objects& only = *new Objects;
  return only;
}

CUcontext primary() { return reinterpret_cast<CUcontext>(&objects().primary); }
thread_local CUcontext current = nullptr;   // null: the primary one
thread_local std::vector<CUcontext> below;  // contexts that others were pushed upon

CUcontext current_context() { return current == nullptr ? primary() : current; }

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

void release_all_of(CUcontext context, bool pools_too) {
  fake_cuda::driver_context_ends(context);
  const std::lock_guard lock(objects().mutex);
  std::erase_if(objects().allocated, [&](const auto& entry) {
    const bool goes = entry.second.context == context || (pools_too && entry.second.context == nullptr);
    if (goes) Memory::get().release(Kind::device, as_pointer(entry.first));
    return goes;
  });
  std::erase_if(objects().pinned, [&](const auto& entry) {
    return entry.second == context && Memory::get().release(Kind::pinned, entry.first);
  });
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
  return Found{range->start, {range->bytes, primary()}};
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

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    current = reinterpret_cast<CUcontext>(*objects().contexts.insert(new char).first);
    return give(context, current);
  });
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return driver_call(__func__, [&] {
    char* const known = reinterpret_cast<char*>(context);
    {
      const std::lock_guard lock(objects().mutex);
      if (objects().contexts.erase(known) == 0) return CUDA_ERROR_INVALID_CONTEXT;
    }
    release_all_of(context, false);
    if (current == context) current = nullptr;
    delete known;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* to, CUdevice) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    ++objects().primary_users;
    return give(to, primary());
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return driver_call(__func__, [] {
    bool last = false;
    {
      const std::lock_guard lock(objects().mutex);
      last = objects().primary_users > 0 && --objects().primary_users == 0;
    }
    if (last) release_all_of(primary(), true);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice) {
  return driver_call(__func__, [] {
    release_all_of(primary(), true);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  return driver_call(__func__, [&] {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(objects().mutex);
    *flags = 0;
    *active = objects().primary_users > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* to) {
  return driver_call(__func__, [&] { return give(to, current_context()); });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return driver_call(__func__, [&] {
    current = context;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return driver_call(__func__, [&] {
    const std::lock_guard lock(objects().mutex);
    if (context != primary() && !objects().contexts.contains(reinterpret_cast<char*>(context)))
      return CUDA_ERROR_INVALID_CONTEXT;
    below.push_back(current);
    current = context;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return driver_call(__func__, [&] {
    if (below.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = current;
    current = below.back();
    below.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return driver_call(__func__, [] {
    if (const int forbidden = fake_cuda::Captures::get().forbids_waiting_for_all())
      return static_cast<CUresult>(forbidden);
    State::get().driver_work_held = false;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return driver_call(__func__, [&] { return give(device, 0); });
}
}

// What the API was before 64-bit addresses, and what it may become: programs that ask for these versions get
// them.
CUresult fake_mem_alloc_v1(unsigned*, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult fake_mem_alloc_of_the_future(CUdeviceptr*, std::size_t, void*) { return CUDA_ERROR_NOT_SUPPORTED; }

// The same under older names.
CUresult fake_primary_ctx_release_v1(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult fake_primary_ctx_reset_v1(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult fake_ctx_destroy_v1(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult fake_stream_destroy_v1(CUstream stream) { return cuStreamDestroy_v2(stream); }
CUresult fake_ipc_open_v1(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}
