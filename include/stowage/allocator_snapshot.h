// What a CachingAllocator holds at one moment, as plain data, and as files: our own JSON, and the pickle that
// PyTorch's memory viewer (https://pytorch.org/memory_viz, torch.cuda._memory_viz) opens.
//
// Thread-safe: both writers only read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/caching_allocator.h"

namespace stowage {

enum class AllocatorEventKind : std::uint8_t {
  allocate,
  release,
  wait,
  map,
  unmap,
  synchronise,
  out_of_memory
};
std::string_view to_string(AllocatorEventKind kind);

struct AllocatorEvent {
  AllocatorEventKind kind = AllocatorEventKind::allocate;
  std::uintptr_t address = 0;  // address of the memory; 0 if the event has none
  Bytes bytes = 0;             // allocate, release: bytes of the block
  LaneId stream = 0;
  PoolId pool = default_pool;
  Bytes free = 0;                 // out_of_memory: bytes that the device and the limit still had
  std::int64_t microseconds = 0;  // time of the event, since 1970
};

// Blocks and the free bytes between them tile their segment.
struct SnapshotBlock {
  std::uintptr_t address = 0;
  Bytes bytes = 0;
  Bytes requested = 0;  // live: bytes that the caller asked for
  bool live = false;    // true: a caller holds the block
  bool cached = false;  // true: its stream's cache holds it; neither live nor cached: free bytes of the heap
  LaneId stream = 0;    // stream of a live or cached block
};

// Contiguous mapped memory of one pool.
struct SnapshotSegment {
  std::uintptr_t address = 0;
  Bytes bytes = 0;
  PoolId pool = default_pool;
  bool small = false;  // true: lies in a zone of the pool for blocks of at most half a granule (1 MiB)
  std::vector<SnapshotBlock> blocks;
};

struct AllocatorSnapshot {
  AllocatorStatistics statistics;
  std::vector<SnapshotSegment> segments;  // ordered by pool, then by address
  std::uint64_t dropped_events = 0;       // number of events that the history no longer has
  std::vector<AllocatorEvent> events;     // oldest first
};

struct DeviceSnapshot {
  int device = 0;  // number of the device
  AllocatorSnapshot memory;
  // The native stream of a lane, as the files name it; the lane's own number without it.
  std::function<std::uint64_t(LaneId)> native_stream = {};
};

// {"version": 1, "devices": [{"device", "limit", "reserved", …, "pools": […], "streams": […], "segments":
// [{"address", "bytes", "pool", "blocks": [{"address", "bytes", "requested", "state", "stream"}]}],
// "dropped_events", "events": […]}]}; states are "live", "cached" and "free".
std::string snapshot_json(const std::vector<DeviceSnapshot>& devices);

// A pickle (protocol 2) of the dictionary that torch.cuda.memory._snapshot() returns: segments,
// device_traces, allocator_settings, external_annotations. Segments are marked expandable, and belong to
// stream 0, since blocks of all streams lie in them. A release is both `free_requested` and `free_completed`:
// reuse is ordered by streams. `frames` are empty. Device numbers are at least 0 and below 1024, else
// InvalidInput.
std::string snapshot_pickle(const std::vector<DeviceSnapshot>& devices);

}  // namespace stowage
