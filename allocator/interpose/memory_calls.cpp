// The calls that allocate and free device memory by address, and those that ask how much the card has.
#include "allocator/interpose/driver.h"
#include "allocator/interpose/places.h"
#include "allocator/interpose/process.h"
#include "allocator/interpose/replacements.h"
#include "allocator/interpose/service.h"

namespace stowage::interpose {
namespace {

std::uint64_t handle_value(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

bool is_per_thread(Entry entry) { return entry_point(entry).per_thread; }

// Returns the stream that `entry` means by `stream`.
std::uint64_t effective_stream(CUstream stream, Entry entry) {
  return stream == nullptr && is_per_thread(entry) ? handle_value(CU_STREAM_PER_THREAD)
                                                   : handle_value(stream);
}

bool is_in_capture(CUstream stream, Entry entry) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const Entry asked = is_per_thread(entry) ? Entry::stream_is_capturing_ptsz : Entry::stream_is_capturing;
  return call_real<decltype(cuStreamIsCapturing)>(asked, stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Returns a block in the current context, on its device.
Block block_in_current_context(Kind kind, Bytes bytes) {
  const bool of_a_pool = kind == Kind::async || kind == Kind::pool;
  CUcontext context = nullptr;
  CUdevice device = 0;
  call_real<decltype(cuCtxGetCurrent)>(Entry::ctx_get_current, &context);
  call_real<decltype(cuCtxGetDevice)>(Entry::ctx_get_device, &device);
  return {kind, device, of_a_pool ? 0 : handle_value(context), 0, bytes};
}

// Allocates on the card, or on the host if the card has no room and memory may spill.
CUresult allocate(const AllocateCall& call, Block block) {
  const bool admitted = ledger().admit(block);
  const CUresult result = admitted ? service().allocate(call) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    ledger().granted(*call.address, block);
    return result;
  }
  SpillAnswer answer{result, {}};
  if (result == CUDA_ERROR_OUT_OF_MEMORY && spill().on() && on_the_card(block.kind))
    answer = spill().allocate(call, block);
  if (answer.result == CUDA_SUCCESS) {
    if (admitted) ledger().give_back(block);
    block.spilled = true;
    ledger().granted(*call.address, block);
  } else if (admitted) {
    ledger().failed(block, result, answer.why);
  } else {
    ledger().refused(block, answer.why);
  }
  return answer.result;
}

CUresult allocate_in_order(const AllocateCall& call, Block block) {
  block.stream = effective_stream(call.stream, call.entry);
  if (is_in_capture(call.stream, call.entry)) block.kind = Kind::graph;
  return allocate(call, block);
}

CUresult release(const FreeCall& call) {
  spill().settle();
  if (call.address == 0) return service().free(call);
  const bool captured = call.entry != Entry::mem_free && is_in_capture(call.stream, call.entry);
  if (captured) {  // a node of a graph: nothing is freed now, and only a graph's memory can be
    const CUresult result = program_memory(call.address) ? CUDA_ERROR_INVALID_VALUE : service().free(call);
    ledger().note(result == CUDA_SUCCESS ? "free_node" : "not_freed", call.address);
    return result;
  }
  const std::uint64_t stream = effective_stream(call.stream, call.entry);
  const Block block = ledger().take(call.address, stream).value_or(Block{.kind = Kind::unknown});
  const CUresult result = block.spilled ? spill().free(call) : service().free(call);
  if (result == CUDA_SUCCESS) {
    ledger().freed(call.address, block, stream);
  } else {
    ledger().not_freed(call.address, block, result);
  }
  return result;
}

CUresult allocate_async(Entry entry, CUdeviceptr* address, std::size_t bytes, CUstream stream,
                        const void* caller) {
  const AllocateCall call{.entry = entry, .address = address, .bytes = bytes, .stream = stream};
  const Outermost outermost(caller);
  return outermost ? allocate_in_order(call, block_in_current_context(Kind::async, bytes))
                   : PassThrough().allocate(call);
}

CUresult allocate_from_pool(Entry entry, CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,
                            CUstream stream, const void* caller) {
  const AllocateCall call{.entry = entry, .address = address, .bytes = bytes, .pool = pool, .stream = stream};
  const Outermost outermost(caller);
  if (!outermost) return PassThrough().allocate(call);
  Block block = block_in_current_context(Kind::pool, bytes);
  if (const auto place = places().of(pool)) {
    block.kind = place->on_host ? Kind::host_pool : Kind::pool;
    if (!place->on_host) block.device = place->device;
  }
  return allocate_in_order(call, block);
}

CUresult free_async(Entry entry, CUdeviceptr address, CUstream stream, const void* caller) {
  const FreeCall call{.entry = entry, .address = address, .stream = stream};
  const Outermost outermost(caller);
  return outermost ? release(call) : PassThrough().free(call);
}

}  // namespace
}  // namespace stowage::interpose

using namespace stowage::interpose;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  const AllocateCall call{.entry = Entry::mem_alloc, .address = address, .bytes = bytes};
  const Outermost outermost(__builtin_return_address(0));
  return outermost ? allocate(call, block_in_current_context(Kind::device, bytes))
                   : PassThrough().allocate(call);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                            unsigned element_bytes) {
  const AllocateCall call{.entry = Entry::mem_alloc_pitch,
                          .address = address,
                          .pitch = pitch,
                          .width = width,
                          .height = height,
                          .element_bytes = element_bytes};
  const Outermost outermost(__builtin_return_address(0));
  std::size_t bytes = 0;
  // The size is too large for any card, and the driver reports that.
  if (!outermost || __builtin_mul_overflow(width, height, &bytes)) return PassThrough().allocate(call);
  return allocate(call, block_in_current_context(Kind::pitched, bytes));
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  const AllocateCall call{
      .entry = Entry::mem_alloc_managed, .address = address, .bytes = bytes, .flags = flags};
  const Outermost outermost(__builtin_return_address(0));
  return outermost ? allocate(call, block_in_current_context(Kind::managed, bytes))
                   : PassThrough().allocate(call);
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate_async(Entry::mem_alloc_async, address, bytes, stream, __builtin_return_address(0));
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate_async(Entry::mem_alloc_async_ptsz, address, bytes, stream, __builtin_return_address(0));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return allocate_from_pool(Entry::mem_alloc_from_pool_async, address, bytes, pool, stream,
                            __builtin_return_address(0));
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
  return allocate_from_pool(Entry::mem_alloc_from_pool_async_ptsz, address, bytes, pool, stream,
                            __builtin_return_address(0));
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  const FreeCall call{.entry = Entry::mem_free, .address = address};
  const Outermost outermost(__builtin_return_address(0));
  return outermost ? release(call) : PassThrough().free(call);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_async(Entry::mem_free_async, address, stream, __builtin_return_address(0));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free_async(Entry::mem_free_async_ptsz, address, stream, __builtin_return_address(0));
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result = call_real<decltype(cuMemGetInfo_v2)>(Entry::mem_get_info, free, total);
  if (!outermost || result != CUDA_SUCCESS) return result;
  if (free != nullptr) {
    const int device = block_in_current_context(Kind::device, 0).device;
    *free = ledger().free_shown(device, *free + service().idle_bytes(device));
  }
  if (total != nullptr) *total = ledger().total_shown(*total);
  return result;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result = call_real<decltype(cuDeviceTotalMem_v2)>(Entry::device_total_mem, bytes, device);
  if (outermost && result == CUDA_SUCCESS && bytes != nullptr) *bytes = ledger().total_shown(*bytes);
  return result;
}
}
