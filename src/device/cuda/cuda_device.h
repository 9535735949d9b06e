// CudaDevice: the Device contract on one card. Parts: device_memory.cpp, device_lanes.cpp, device_work.cpp.
//
// Every lane is a non-blocking stream. Two things differ from an ideal device:
//   - host functions behind a failed one are skipped, but kernels and copies behind it still run on what
//     is there: the failure is reported by the next synchronise behind it, as ever;
//   - a failure of a kernel or a copy on the card is sticky (check.h).
// The mutex guards the tables and is never held while CUDA is called, as that may block.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/cuda/card_clock.h"
#include "src/device/cuda/check.h"
#include "src/device/cuda/host_order.h"
#include "src/device/cuda/host_work.h"
#include "src/device/cuda/lane_resources.h"
#include "src/device/cuda/memory.h"
#include "stowage/cuda_device.h"

namespace stowage::cuda {

// While this object lives, the calling thread may allocate, map, wait and ask events although a stream is
// being captured (cudaStreamCaptureModeRelaxed); otherwise such a call fails and ends captures of the default
// mode on any thread. If the mode cannot be set, CUDA refuses the following call, as it would without this
// object. The driver sets the mode: the runtime would make a context on the thread's current device for it.
class OutsideCapture {
 public:
  OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;
  ~OutsideCapture();

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // after the exchange, the thread's own mode
  bool exchanged_ = false;
};

// Makes a device the calling thread's current one, outside of any stream capture: while this object lives, or
// from then on.
class CurrentDevice {
 public:
  // `restores`: the destructor makes the thread's former device current again if that has a context (else
  // making it current would create one). Throws as check.h says.
  CurrentDevice(int ordinal, bool restores, const Doing& doing);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  const OutsideCapture outside_;
  int before_ = -1;  // device to make current again; -1: none
};

class CudaDevice final : public Device {
 public:
  // Allocates the context, its libraries' memory and the first compute lane's scratch. Throws as
  // check.h says.
  explicit CudaDevice(const CudaOptions& options);
  ~CudaDevice() override;

  DeviceInfo info() const override { return {name_, "cuda"}; }
  MemoryInfo memory_info() const override;

  void* allocate(MemoryKind kind, Bytes bytes) override;
  void release(MemoryKind kind, void* address) override;
  Bytes granularity() const override;
  void* reserve(Bytes bytes) override;
  void unreserve(void* address) override;
  void map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) override;
  void unmap(void* range, Bytes offset, Bytes bytes) override;

  LaneId create_lane(LaneRole role) override;
  LaneId adopt_lane(void* native_stream) override;
  bool is_captured(LaneId lane) const override;
  void destroy_lane(LaneId lane) override;
  EventId create_event() override;
  EventId create_untimed_event() override;
  void destroy_event(EventId event) override;
  void record(EventId event, LaneId lane) override;
  void wait(LaneId lane, EventId event) override;
  bool query(EventId event) override;
  void synchronise(EventId event) override;
  void synchronise_lane(LaneId lane) override;
  double elapsed_seconds(EventId from, EventId to) override;

  void copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) override;
  void launch(LaneId lane, const Launch& launch) override;
  void discard(LaneId lane, void* address, Bytes bytes) override;
  void* native_stream(LaneId lane) override;

  DeviceCounters counters() const override;
  void reset_counters() override;

 private:
  struct LaneSlot {
    cudaStream_t stream = nullptr;  // null: no such lane
    LaneRole role = LaneRole::compute;
    bool adopted = false;                      // true: the caller owns the stream
    std::unique_ptr<LaneResources> resources;  // set for compute lanes that are not adopted
    std::shared_ptr<HostWork> host;            // set for host lanes
  };
  struct EventSlot {
    cudaEvent_t handle = nullptr;  // null: no such event
    bool recorded = false;
    bool timed = false;
    // Set if a host lane recorded the event: the event has passed once `function` has run, and CUDA's event
    // is not used.
    std::shared_ptr<HostTurns> turns;
    std::uint32_t function = 0;
    std::shared_ptr<HostMoment> moment;  // moment of passing, if the event is timed
  };
  // A lane as its only caller uses it outside the mutex.
  struct LaneView {
    cudaStream_t stream = nullptr;
    LaneRole role = LaneRole::compute;
    HostWork* host = nullptr;
    LaneResources* resources = nullptr;
    bool adopted = false;
  };
  struct Work {
    std::string_view call;
    std::string_view name;
    LaneId lane = 0;
    LaneRole role = LaneRole::compute;
  };

  Doing doing(std::string_view function, Bytes bytes = 0, std::string_view work = {}) const {
    return {function, work, ordinal_, bytes};
  }
  // Makes the card the thread's current one, for the call or from then on. Throws if the card has
  // failed before.
  [[nodiscard]] CurrentDevice enter(std::string_view call) const;
  [[nodiscard]] CurrentDevice begin_call(std::string_view call);  // as enter, and counts the call
  LaneView view(LaneId lane, std::string_view call) const STOWAGE_REQUIRES(mutex_);
  LaneView find_lane(LaneId lane, std::string_view call) const;
  EventSlot find_event(EventId event, std::string_view call) const;
  std::unique_ptr<LaneResources> take_resources();
  EventId add_event(unsigned flags, std::string_view call);
  static void end_stream(const LaneView& ending, const Doing& what);
  void end_work() noexcept STOWAGE_REQUIRES(mutex_);
  void close_lane(LaneSlot& lane) noexcept;
  // If the card is lost, stops the lane's host functions, which would find their caller's memory gone.
  void stop_if_lost(LaneId lane) noexcept;
  void synchronise_stream(LaneId lane);
  void end_lane(LaneId lane);
  void report(const std::shared_ptr<const HostFailure>& failure) const;

  std::shared_ptr<HostTurns> take_turns();
  std::shared_ptr<HostWork> host_work(LaneId lane, std::shared_ptr<HostTurns> turns) const;
  // Makes the stream wait until the function has run.
  void enqueue_wait(cudaStream_t stream, HostTurns& turns, std::uint32_t function, const Doing& what) const;
  // Appends to the host lane's stream the mark that the lane's next function waits for.
  void enqueue_mark(const LaneView& on, const Doing& what) const;
  void record_function(EventId event, LaneId lane, const LaneView& on, const EventSlot& recorded);
  void wait_for_function(const LaneView& waiting, const EventSlot& event) const;
  // Blocks the caller until a host lane's function has run. `look` throws if the card has failed.
  template <class Look>
  void await_function(HostTurns& turns, std::uint32_t function, const Look& look) const;
  void await_lane(const LaneView& lane, const Doing& what) const;
  void await_event(const EventSlot& event, const Doing& what) const;
  CardClock& clock();
  // As cudaEventElapsedTime, for events of any lanes.
  cudaError_t seconds_between(const EventSlot& from, const EventSlot& to, double& seconds);
  void enqueue_kernels(LaneId lane, LaneRole role, const Launch& launch) const;
  // Throws AccessViolation unless the access lies in one live allocation, and is mapped.
  Memory::Found expect_held(const Work& work, const Access& access) const;
  // Returns the kind of the accessed memory.
  MemoryKind note_access(const Work& work, const Access& access) STOWAGE_REQUIRES(mutex_);
  void expect_kinds(const Work& work, const void* to, const void* from) const;
  static std::string describe_lane(LaneRole role, LaneId lane);

  const int ordinal_;
  const bool keeps_current_;
  const Bytes scratch_bytes_;
  std::string name_;
  Bytes others_ = 0;                // bytes of other programs when the device was opened
  std::unique_ptr<Memory> memory_;  // set from the constructor to the destructor
  const std::shared_ptr<HostOrder> order_ = std::make_shared<HostOrder>();

  mutable Mutex mutex_;
  std::vector<LaneSlot> lanes_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<EventSlot> events_ STOWAGE_GUARDED_BY(mutex_);
  // Resources of destroyed lanes, for reuse.
  std::vector<std::unique_ptr<LaneResources>> spare_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<HostTurns>> spare_turns_ STOWAGE_GUARDED_BY(mutex_);
  std::unique_ptr<CardClock> clock_ STOWAGE_GUARDED_BY(mutex_);  // null until there is a host lane
  DeviceCounters counters_ STOWAGE_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> calls_ = 0;
};

// Opening a card: the functions that the CUDA module offers to the program that loads it.

// Implement cuda_status and open_cuda_device (include/stowage/cuda_device.h).
CudaStatus status();
std::unique_ptr<Device> open_device(const CudaOptions& options);

}  // namespace stowage::cuda
