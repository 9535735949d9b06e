// Device: memory, lanes and events of one accelerator, behind one small interface.
//
// Order is that of CUDA streams: a lane runs what it is given in order; `wait` holds a lane until the work
// captured by the event's most recent `record` is done; an event never recorded holds nobody. Calls may come
// from any thread, one at a time per lane. Calls that enqueue return at once and report their own failure; a
// failure of the work itself is reported by the next `synchronise` of the lane, or of a lane or event behind
// it, and the lane's later work is skipped until then. Errors: DeviceError (naming the call), OutOfMemory,
// InvalidInput for a misuse.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "stowage/bytes.h"
#include "stowage/lanes.h"

namespace stowage {

enum class MemoryKind : std::uint8_t {
  device,
  pinned,    // page-locked memory of the host
  pageable,  // other host memory, for values that are not copied, since copies of it are slower
};
const char* to_string(MemoryKind kind);

using LaneId = std::uint32_t;
using EventId = std::uint32_t;

struct DeviceInfo {
  std::string name;     // e.g. "simulated", "NVIDIA H200"
  std::string backend;  // "simulated" or "cuda"
};

struct MemoryInfo {
  Bytes total = 0;
  Bytes free = 0;
  // The part of `total` that the context and the libraries hold beside all allocations. It grows when a
  // library loads more code; on a shared card it includes what others have taken since the card was opened.
  Bytes overhead = 0;
};

// Counts since the device was opened (or since `reset_counters`).
struct DeviceCounters {
  std::uint64_t calls = 0;  // number of calls that could have failed
  std::uint64_t device_allocations = 0;
  std::uint64_t pinned_allocations = 0;
  double pinning_seconds = 0;  // wall seconds of the pinned allocations
  Bytes h2d_bytes = 0;
  Bytes d2h_bytes = 0;
  Bytes highest_device_byte = 0;  // end of the highest byte touched, counted from its allocation's start
};

enum class AccessMode : std::uint8_t { read, write };  // an update in place is a write and a read

struct Access {
  void* address = nullptr;
  Bytes bytes = 0;
  AccessMode mode = AccessMode::read;
};

// `function(context)` runs on the lane: for a GPU it enqueues kernels on the lane's stream, for the simulated
// device and on host lanes it is the work itself. `context` must outlive the work; `name` and `accesses` only
// the call. `accesses` lists everything that the work reads and writes in device memory and in host memory of
// this device; devices that cannot check ignore it.
struct Launch {
  std::string_view name;
  void (*function)(void* context) = nullptr;
  void* context = nullptr;
  std::span<const Access> accesses;
  double modelled_seconds = 0;  // duration of the work in virtual time
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual DeviceInfo info() const = 0;
  virtual MemoryInfo memory_info() const = 0;

  // Returns memory aligned to at least 256 bytes, never null. Requires bytes > 0. Host memory is zeroed.
  // Throws OutOfMemory with the account.
  virtual void* allocate(MemoryKind kind, Bytes bytes) = 0;
  // Releases without waiting: the caller has synchronised. Throws InvalidInput for an address that the device
  // did not give out.
  virtual void release(MemoryKind kind, void* address) = 0;

  // Virtual ranges: address space first, memory later. `offset`, `bytes` and `piece` are multiples of
  // `granularity()`. Unmapped memory may not be touched. Memory is mapped in pieces of `piece` bytes, the
  // last of which may be shorter. Few large pieces are faster to map. A piece is unmapped as a whole; one
  // call of `unmap` may cover several that lie side by side.
  virtual Bytes granularity() const = 0;
  virtual void* reserve(Bytes bytes) = 0;
  virtual void unreserve(void* address) = 0;
  virtual void map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) = 0;
  void map(void* range, Bytes offset, Bytes bytes) { map_pieces(range, offset, bytes, granularity()); }
  virtual void unmap(void* range, Bytes offset, Bytes bytes) = 0;

  virtual LaneId create_lane(LaneRole role) = 0;
  virtual void destroy_lane(LaneId lane) = 0;  // destroys the lane once its work is done
  // Makes a compute lane over a stream of the caller's own (a cudaStream_t; null: the legacy default stream),
  // for order alone: record, wait, synchronise. The stream outlives its use here, and stays when the lane is
  // destroyed. Throws InvalidInput where the device has no native streams, and for a handle that means
  // another stream on each thread.
  virtual LaneId adopt_lane(void* native_stream);
  // True while the stream under an adopted lane is being captured into a graph. Meanwhile nothing may be
  // recorded on the lane, the lane may wait for nothing from outside the capture, and an event that was
  // recorded within the capture may be neither queried nor waited for, then or later. Waiting for the
  // captured lane or destroying it is not safe either; other calls are, on any thread.
  virtual bool is_captured(LaneId lane) const {
    static_cast<void>(lane);
    return false;
  }
  virtual EventId create_event() = 0;
  // Creates an event for order and waiting alone, which costs a card less. elapsed_seconds throws
  // InvalidInput for it.
  virtual EventId create_untimed_event() { return create_event(); }
  virtual void destroy_event(EventId event) = 0;

  virtual void record(EventId event, LaneId lane) = 0;
  virtual void wait(LaneId lane, EventId event) = 0;
  virtual bool query(EventId event) = 0;        // true when done (or never recorded)
  virtual void synchronise(EventId event) = 0;  // blocks the caller
  virtual void synchronise_lane(LaneId lane) = 0;
  // Returns the device time between two recorded, finished events. On a card, between an event of a host lane
  // and one of another lane, it is accurate to some 10 microseconds, and so may be negative.
  virtual double elapsed_seconds(EventId from, EventId to) = 0;

  // Copies between device memory and host memory; exactly one side is device memory, and the lane's role
  // gives the direction. With pageable host memory the call may wait for all previous work of the lane, and
  // for the copy.
  virtual void copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) = 0;
  virtual void launch(LaneId lane, const Launch& launch) = 0;
  // Says that the range's contents are dead from here on this lane (the simulated device poisons it).
  virtual void discard(LaneId lane, void* address, Bytes bytes) = 0;
  // Returns LaunchArguments::stream for kernels: the cudaStream_t of a CUDA device's lane; null if kernels
  // run in place.
  virtual void* native_stream(LaneId lane) {
    static_cast<void>(lane);
    return nullptr;
  }

  virtual DeviceCounters counters() const = 0;
  virtual void reset_counters() = 0;
};

// Move-only owners. The device must outlive them; memory is released when they die.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device& device, MemoryKind kind, Bytes bytes);
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    DeviceMemory moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~DeviceMemory();
  std::byte* data() const { return data_; }
  Bytes bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::device;
  std::byte* data_ = nullptr;
  Bytes bytes_ = 0;
};

class Lane {
 public:
  Lane() = default;
  Lane(Device& device, LaneRole role) : device_(&device), id_(device.create_lane(role)) {}
  Lane(Lane&& other) noexcept : device_(std::exchange(other.device_, nullptr)), id_(other.id_) {}
  Lane& operator=(Lane&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~Lane();
  LaneId id() const { return id_; }

 private:
  Device* device_ = nullptr;
  LaneId id_ = 0;
};

class Event {
 public:
  Event() = default;
  explicit Event(Device& device) : Event(device, device.create_event()) {}
  static Event untimed(Device& device) { return {device, device.create_untimed_event()}; }
  Event(Event&& other) noexcept : device_(std::exchange(other.device_, nullptr)), id_(other.id_) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~Event();
  EventId id() const { return id_; }

 private:
  Event(Device& device, EventId id) : device_(&device), id_(id) {}
  Device* device_ = nullptr;
  EventId id_ = 0;
};

}  // namespace stowage
