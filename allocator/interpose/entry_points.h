// The driver's functions that the interposer knows: those that it replaces, and a few that it calls itself.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace stowage::interpose {

enum class Entry : std::size_t {
  get_proc_address_v1,
  get_proc_address,
  mem_alloc,
  mem_alloc_pitch,
  mem_alloc_managed,
  mem_alloc_async,
  mem_alloc_async_ptsz,
  mem_alloc_from_pool_async,
  mem_alloc_from_pool_async_ptsz,
  mem_free,
  mem_free_async,
  mem_free_async_ptsz,
  mem_get_info,
  device_total_mem,
  mem_create,
  mem_release,
  mem_retain_allocation_handle,
  mem_map,
  mem_unmap,
  mem_pool_create,
  mem_pool_destroy,
  ipc_get_mem_handle,
  ipc_open_mem_handle_v1,
  ipc_open_mem_handle,
  ipc_close_mem_handle,
  mem_get_address_range,
  pointer_get_attribute,
  pointer_get_attributes,
  ctx_destroy_v1,
  ctx_destroy,
  primary_ctx_retain,
  primary_ctx_release_v1,
  primary_ctx_release,
  primary_ctx_reset_v1,
  primary_ctx_reset,
  stream_destroy_v1,
  stream_destroy,
  stream_begin_capture_v1,
  stream_begin_capture_v1_ptsz,
  stream_begin_capture,
  stream_begin_capture_ptsz,
  stream_begin_capture_to_graph,
  stream_begin_capture_to_graph_ptsz,
  stream_end_capture,
  stream_end_capture_ptsz,
  replaced,  // the number of entries that the library replaces; it only calls those below
  ctx_get_current = replaced,
  ctx_get_device,
  primary_ctx_get_state,
  stream_is_capturing,
  stream_is_capturing_ptsz,
  ctx_push_current,
  ctx_pop_current,
  ctx_synchronize,
  device_get_attribute,
  device_get_count,
  event_create,
  event_record,
  event_record_ptsz,
  event_query,
  event_synchronize,
  event_destroy,
  mem_address_reserve,
  mem_address_free,
  mem_set_access,
  mem_get_allocation_granularity,
  mem_host_alloc,
  mem_host_get_device_pointer,
  mem_free_host,
  stream_get_ctx,
  stream_get_ctx_ptsz,
  thread_exchange_capture_mode,
  count
};

inline constexpr std::size_t replaced_count = static_cast<std::size_t>(Entry::replaced);
inline constexpr std::size_t entry_count = static_cast<std::size_t>(Entry::count);

struct EntryPoint {
  const char* symbol;  // the name that libcuda exports
  const char* name;    // the name that cuGetProcAddress takes
  int version;         // the first version of CUDA at which `name` has this signature
  bool per_thread;     // stream 0 is the thread's own stream
  bool allocates;      // a program that calls another version of this function may allocate unseen
};

const EntryPoint& entry_point(Entry entry);

// Returns the replaced entry that libcuda exports as `symbol`; Entry::count if there is none.
Entry replaced_symbol(std::string_view symbol);

}  // namespace stowage::interpose
