#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

#include "src/device/cuda/cuda_device.h"
#include "src/device/cuda/driver_api.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

template <class Slot, class Live>
std::uint32_t free_slot(std::vector<Slot>& slots, Live is_live) {
  const auto unused = std::find_if_not(slots.begin(), slots.end(), is_live);
  const auto index = static_cast<std::uint32_t>(unused - slots.begin());
  if (unused == slots.end()) slots.emplace_back();
  return index;
}

// Destroys the stream unless it is kept.
struct StreamGuard {
  cudaStream_t stream = nullptr;
  StreamGuard() = default;
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard() {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

}  // namespace

LaneId CudaDevice::create_lane(LaneRole role) {
  const CurrentDevice current = begin_call("create_lane");
  StreamGuard made;
  check(cudaStreamCreateWithFlags(&made.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
        doing("create_lane"));
  auto resources = row_of(role).computes_on(MemoryId::device) ? take_resources() : nullptr;
  if (role == LaneRole::host) clock();  // makes the clock, so that no step has to
  auto turns = role == LaneRole::host ? take_turns() : nullptr;
  const MutexLock lock(mutex_);
  const LaneId id = free_slot(lanes_, [](const LaneSlot& slot) { return slot.stream != nullptr; });
  LaneSlot& lane = lanes_[id];
  order_->add_lane(id);
  if (turns != nullptr) lane.host = host_work(id, std::move(turns));
  if (resources != nullptr) {
    resources->stream = made.stream;
    register_lane(*resources);
  }
  lane.resources = std::move(resources);
  lane.role = role;
  lane.stream = std::exchange(made.stream, nullptr);
  return id;
}

LaneId CudaDevice::adopt_lane(void* native_stream) {
  const CurrentDevice current = begin_call("adopt_lane");
  if (native_stream == cudaStreamPerThread)
    throw InvalidInput(
        "adopt_lane: cudaStreamPerThread is another stream on each thread; pass a stream of its own");
  const MutexLock lock(mutex_);
  const LaneId id = free_slot(lanes_, [](const LaneSlot& slot) { return slot.stream != nullptr; });
  order_->add_lane(id);
  lanes_[id].adopted = true;
  lanes_[id].stream = native_stream == nullptr ? cudaStreamLegacy : static_cast<cudaStream_t>(native_stream);
  return id;
}

bool CudaDevice::is_captured(LaneId lane) const {
  const LaneView asked = find_lane(lane, "is_captured");
  if (!asked.adopted) return false;
  const CurrentDevice current = enter("is_captured");
  cudaStreamCaptureStatus status{};
  const cudaError_t answer = cudaStreamIsCapturing(asked.stream, &status);
  // This is the default stream, for which a captured stream waits.
  if (answer == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return true;
  }
  check(answer, "cudaStreamIsCapturing", doing("is_captured"));
  return status != cudaStreamCaptureStatusNone;
}

// Returns resources for a compute lane: spare ones first, such as those that were made when the device was
// opened and count as its overhead.
std::unique_ptr<LaneResources> CudaDevice::take_resources() {
  {
    const MutexLock lock(mutex_);
    if (!spare_.empty()) {
      auto resources = std::move(spare_.back());
      spare_.pop_back();
      return resources;
    }
  }
  return std::make_unique<LaneResources>(ordinal_, scratch_bytes_);
}

std::shared_ptr<HostTurns> CudaDevice::take_turns() {
  if (driver_api().stream_batch_mem_op == nullptr)
    throw DeviceError("create_lane: the driver has no cuStreamBatchMemOp; install one of CUDA 12 or later",
                      "create_lane");
  {
    const MutexLock lock(mutex_);
    if (!spare_turns_.empty()) {
      auto turns = std::move(spare_turns_.back());
      spare_turns_.pop_back();
      return turns;
    }
  }
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof(HostTurns), cudaHostAllocDefault), "cudaHostAlloc",
        doing("create_lane", sizeof(HostTurns)));
  return {new (memory) HostTurns, [](HostTurns* turns) {
            std::destroy_at(turns);
            cudaFreeHost(turns);
          }};
}

std::shared_ptr<HostWork> CudaDevice::host_work(LaneId lane, std::shared_ptr<HostTurns> turns) const {
  try {
    return std::make_shared<HostWork>(order_, lane, describe_lane(LaneRole::host, lane), std::move(turns));
  } catch (const std::system_error& error) {
    throw DeviceError(
        fmt::format("create_lane: the host lane gets no thread: {}; end others, or allow more", error.what()),
        "create_lane");
  }
}

void CudaDevice::destroy_lane(LaneId lane) {
  try {
    end_lane(lane);
  } catch (const std::exception&) {
    stop_if_lost(lane);
    throw;
  }
}

void CudaDevice::end_lane(LaneId lane) {
  const LaneView ending = find_lane(lane, "destroy_lane");
  const CurrentDevice current = enter("destroy_lane");
  const Doing what = doing("destroy_lane");
  check(cudaStreamSynchronize(ending.stream), "cudaStreamSynchronize", what);
  if (ending.host != nullptr) await_lane(ending, what);
  if (!ending.adopted) end_stream(ending, what);
  const MutexLock lock(mutex_);
  if (ending.resources != nullptr) {
    ending.resources->stream = nullptr;
    spare_.push_back(std::move(lanes_[lane].resources));
  }
  if (ending.host != nullptr) spare_turns_.push_back(ending.host->turns());
  lanes_[lane] = {};
  order_->remove_lane(lane);
}

void CudaDevice::end_stream(const LaneView& ending, const Doing& what) {
  if (ending.resources != nullptr) ending.resources->attention.reset();
  unregister_lane(ending.stream);  // comes first, since another thread may then get the same handle anew
  const cudaError_t ended = cudaStreamDestroy(ending.stream);
  if (ended != cudaSuccess && ending.resources != nullptr) register_lane(*ending.resources);
  check(ended, "cudaStreamDestroy", what);
}

// A thread that waits for an event leaves its core to the threads that update parameters.
EventId CudaDevice::create_event() { return add_event(cudaEventBlockingSync, "create_event"); }

EventId CudaDevice::create_untimed_event() {
  return add_event(cudaEventBlockingSync | cudaEventDisableTiming, "create_untimed_event");
}

EventId CudaDevice::add_event(unsigned flags, std::string_view call) {
  const CurrentDevice current = begin_call(call);
  cudaEvent_t handle = nullptr;
  check(cudaEventCreateWithFlags(&handle, flags), "cudaEventCreateWithFlags", doing(call));
  const MutexLock lock(mutex_);
  const EventId id = free_slot(events_, [](const EventSlot& slot) { return slot.handle != nullptr; });
  events_[id] = {};
  events_[id].handle = handle;
  events_[id].timed = (flags & cudaEventDisableTiming) == 0;
  order_->add_event(id);
  return id;
}

void CudaDevice::destroy_event(EventId event) {
  const EventSlot ending = find_event(event, "destroy_event");
  const CurrentDevice current = enter("destroy_event");
  check(cudaEventDestroy(ending.handle), "cudaEventDestroy", doing("destroy_event"));
  const MutexLock lock(mutex_);
  events_[event] = {};
}

void CudaDevice::record(EventId event, LaneId lane) {
  const CurrentDevice current = begin_call("record");
  const LaneView on = find_lane(lane, "record");
  const EventSlot what = find_event(event, "record");
  if (on.host != nullptr) return record_function(event, lane, on, what);
  check(cudaEventRecord(what.handle, on.stream), "cudaEventRecord", doing("record"));
  const MutexLock lock(mutex_);
  events_[event].recorded = true;
  events_[event].turns = nullptr;
  order_->record(event, lane);
}

void CudaDevice::wait(LaneId lane, EventId event) {
  const CurrentDevice current = begin_call("wait");
  const LaneView waiting = find_lane(lane, "wait");
  const EventSlot what = find_event(event, "wait");
  if (!what.recorded) return;
  if (what.turns != nullptr) {
    wait_for_function(waiting, what);
  } else {
    check(cudaStreamWaitEvent(waiting.stream, what.handle, 0), "cudaStreamWaitEvent", doing("wait"));
    if (waiting.host != nullptr) enqueue_mark(waiting, doing("wait"));
  }
  order_->wait(lane, event);
}

bool CudaDevice::query(EventId event) {
  const CurrentDevice current = begin_call("query");
  const EventSlot what = find_event(event, "query");
  if (!what.recorded) return true;
  if (what.turns != nullptr && what.turns->has_finished(what.function)) return true;
  const cudaError_t state = cudaEventQuery(what.handle);
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // clears an answer that is no failure, but that the runtime keeps as one
    return false;
  }
  check(state, "cudaEventQuery", doing("query"));
  return what.turns == nullptr;
}

void CudaDevice::synchronise(EventId event) {
  const CurrentDevice current = begin_call("synchronise");
  const EventSlot what = find_event(event, "synchronise");
  if (!what.recorded) return;
  if (what.turns != nullptr)
    await_event(what, doing("synchronise"));
  else
    check(cudaEventSynchronize(what.handle), "cudaEventSynchronize", doing("synchronise"));
  report(order_->carried_by_event(event));
}

void CudaDevice::synchronise_lane(LaneId lane) {
  try {
    synchronise_stream(lane);
  } catch (const std::exception&) {
    stop_if_lost(lane);
    throw;
  }
}

void CudaDevice::synchronise_stream(LaneId lane) {
  const CurrentDevice current = begin_call("synchronise_lane");
  const LaneView what = find_lane(lane, "synchronise_lane");
  check(cudaStreamSynchronize(what.stream), "cudaStreamSynchronize", doing("synchronise_lane"));
  if (what.host != nullptr) await_lane(what, doing("synchronise_lane"));
  report(order_->take(lane));
}

double CudaDevice::elapsed_seconds(EventId from, EventId to) {
  const CurrentDevice current = begin_call("elapsed_seconds");
  const EventSlot begin = find_event(from, "elapsed_seconds"), end = find_event(to, "elapsed_seconds");
  if (!begin.timed || !end.timed)
    throw InvalidInput(
        fmt::format("elapsed_seconds: event {} has no time; pass what create_event returned, not "
                    "create_untimed_event",
                    begin.timed ? to : from));
  double seconds = 0;
  const cudaError_t state =
      begin.recorded && end.recorded ? seconds_between(begin, end, seconds) : cudaErrorNotReady;
  if (state == cudaErrorNotReady) {
    cudaGetLastError();
    throw InvalidInput(fmt::format(
        "elapsed_seconds: event {} or {} is not recorded and finished; synchronise with both first", from,
        to));
  }
  check(state, "cudaEventElapsedTime", doing("elapsed_seconds"));
  return seconds;
}

void* CudaDevice::native_stream(LaneId lane) { return find_lane(lane, "native_stream").stream; }

CudaDevice::LaneView CudaDevice::view(LaneId lane, std::string_view call) const {
  if (lane >= lanes_.size() || lanes_[lane].stream == nullptr)
    throw InvalidInput(fmt::format("{}: there is no lane {}; pass what create_lane returned", call, lane));
  const LaneSlot& slot = lanes_[lane];
  return {slot.stream, slot.role, slot.host.get(), slot.resources.get(), slot.adopted};
}

CudaDevice::LaneView CudaDevice::find_lane(LaneId lane, std::string_view call) const {
  const MutexLock lock(mutex_);
  return view(lane, call);
}

CudaDevice::EventSlot CudaDevice::find_event(EventId event, std::string_view call) const {
  const MutexLock lock(mutex_);
  if (event >= events_.size() || events_[event].handle == nullptr)
    throw InvalidInput(fmt::format("{}: there is no event {}; pass what create_event returned", call, event));
  return events_[event];
}

void CudaDevice::report(const std::shared_ptr<const HostFailure>& failure) const {
  if (failure != nullptr) throw DeviceError(failure->message, "launch", failure->work);
}

}  // namespace stowage::cuda
