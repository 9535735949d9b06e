// A snapshot as torch.cuda.memory._snapshot() gives it. The keys are those of PyTorch's own writer
// (torch/csrc/cuda/memory_snapshot.cpp) and of its readers (torch/cuda/_memory_viz.py,
// torch/utils/viz/MemoryViz.js).
#include <fmt/core.h>

#include <algorithm>

#include "allocator/pickle_writer.h"
#include "stowage/allocator_snapshot.h"
#include "stowage/error.h"

namespace stowage {
namespace {

using caching::PickleWriter;

constexpr int most_devices = 1024;

class TorchSnapshot {
 public:
  std::string write(const std::vector<DeviceSnapshot>& devices) {
    out_.begin_dictionary();
    out_.text("segments");
    out_.begin_list();
    for (const DeviceSnapshot& device : devices)
      for (const SnapshotSegment& segment : device.memory.segments) write_segment(device, segment);
    out_.end();
    write_traces(devices);
    write_settings(devices);
    out_.text("external_annotations");
    empty_list();
    out_.end();
    return out_.finish();
  }

 private:
  void number(std::string_view key, std::uint64_t value) {
    out_.text(key);
    out_.integer(static_cast<std::int64_t>(value));
  }
  void word(std::string_view key, std::string_view value) {
    out_.text(key);
    out_.text(value);
  }
  void flag(std::string_view key, bool value) {
    out_.text(key);
    out_.boolean(value);
  }
  void empty_list() {
    out_.begin_list();
    out_.end();
  }
  void no_frames() {
    out_.text("frames");
    empty_list();
  }
  static std::uint64_t stream_of(const DeviceSnapshot& device, LaneId lane) {
    return device.native_stream ? device.native_stream(lane) : lane;
  }

  void write_segment(const DeviceSnapshot& device, const SnapshotSegment& segment) {
    Bytes allocated = 0, requested = 0;
    for (const SnapshotBlock& block : segment.blocks) {
      allocated += block.live ? block.bytes : 0;
      requested += block.requested;
    }
    out_.begin_dictionary();
    number("device", static_cast<std::uint64_t>(device.device));
    number("address", segment.address);
    number("total_size", segment.bytes);
    number("allocated_size", allocated);
    number("active_size", allocated);
    number("requested_size", requested);
    number("stream", 0);
    word("segment_type", segment.small ? "small" : "large");
    out_.text("segment_pool_id");
    out_.pair(0, segment.pool);
    flag("is_expandable", true);
    no_frames();
    out_.text("blocks");
    out_.begin_list();
    for (const SnapshotBlock& block : segment.blocks) write_block(block);
    out_.end();
    out_.end();
  }

  void write_block(const SnapshotBlock& block) {
    out_.begin_dictionary();
    number("address", block.address);
    number("size", block.bytes);
    number("requested_size", block.requested);
    word("state", block.live ? "active_allocated" : "inactive");
    no_frames();
    out_.end();
  }

  void write_traces(const std::vector<DeviceSnapshot>& devices) {
    int count = 0;
    for (const DeviceSnapshot& device : devices) count = std::max(count, device.device + 1);
    out_.text("device_traces");
    out_.begin_list();
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      out_.begin_list();
      for (const DeviceSnapshot& device : devices)
        if (device.device == ordinal)
          for (const AllocatorEvent& event : device.memory.events) write_event(device, event);
      out_.end();
    }
    out_.end();
  }

  void write_event(const DeviceSnapshot& device, const AllocatorEvent& event) {
    switch (event.kind) {
      case AllocatorEventKind::allocate:
        return write_entry(device, event, "alloc");
      case AllocatorEventKind::release:
        write_entry(device, event, "free_requested");
        return write_entry(device, event, "free_completed");
      case AllocatorEventKind::map:
        return write_entry(device, event, "segment_map");
      case AllocatorEventKind::unmap:
        return write_entry(device, event, "segment_unmap");
      case AllocatorEventKind::out_of_memory:
        return write_entry(device, event, "oom");
      case AllocatorEventKind::wait:
      case AllocatorEventKind::synchronise:
        return;  // PyTorch's traces have no such action
    }
  }

  void write_entry(const DeviceSnapshot& device, const AllocatorEvent& event, std::string_view action) {
    const bool mapping = event.kind == AllocatorEventKind::map || event.kind == AllocatorEventKind::unmap;
    const bool failed = event.kind == AllocatorEventKind::out_of_memory;
    out_.begin_dictionary();
    word("action", action);
    number(failed ? "device_free" : "addr", failed ? event.free : event.address);
    number("size", event.bytes);
    number("stream", mapping ? 0 : stream_of(device, event.stream));
    number("time_us", static_cast<std::uint64_t>(event.microseconds));
    no_frames();
    out_.end();
  }

  // PyTorch's settings, as they are by default, and ours.
  void write_settings(const std::vector<DeviceSnapshot>& devices) {
    out_.text("allocator_settings");
    out_.begin_dictionary();
    word("PYTORCH_CUDA_ALLOC_CONF", "");
    out_.text("max_split_size");
    out_.integer(-1);
    out_.text("garbage_collection_threshold");
    out_.real(0);
    flag("expandable_segments", true);
    out_.text("pinned_num_register_threads");
    out_.integer(1);
    flag("release_lock_on_cudamalloc", false);
    flag("pinned_use_cuda_host_register", false);
    out_.text("roundup_power2_divisions");
    out_.begin_dictionary();
    out_.end();
    word("allocator", "stowage");
    out_.text("limits");  // limit of each device in bytes; -1: none
    out_.begin_list();
    for (const DeviceSnapshot& device : devices)
      out_.integer(static_cast<std::int64_t>(device.memory.statistics.limit));
    out_.end();
    out_.end();
  }

  PickleWriter out_;
};

}  // namespace

std::string snapshot_pickle(const std::vector<DeviceSnapshot>& devices) {
  for (const DeviceSnapshot& device : devices)
    if (device.device < 0 || device.device >= most_devices)
      throw InvalidInput(fmt::format("snapshot: device {} is not one of {}; number devices from 0",
                                     device.device, most_devices));
  return TorchSnapshot{}.write(devices);
}

}  // namespace stowage
