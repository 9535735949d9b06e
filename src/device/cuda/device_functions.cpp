// Waits between the streams of a card and the functions of its host lanes.
#include <chrono>

#include "src/device/cuda/cuda_device.h"
#include "src/device/cuda/driver_api.h"

namespace stowage::cuda {
namespace {

void enqueue(cudaStream_t stream, CUstreamBatchMemOpParams does, const Doing& what) {
  check(driver_api().stream_batch_mem_op(stream, 1, &does, 0), "cuStreamBatchMemOp", what);
}

void still_works(cudaError_t state, std::string_view call, const Doing& what) {
  if (state == cudaErrorNotReady)
    cudaGetLastError();  // clears an answer that is no failure, but that the runtime keeps as one
  else
    check(state, call, what);
}

}  // namespace

void CudaDevice::enqueue_wait(cudaStream_t stream, HostTurns& turns, std::uint32_t function,
                              const Doing& what) const {
  if (turns.has_finished(function)) return;
  CUstreamBatchMemOpParams does{};
  does.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                    .address = reinterpret_cast<CUdeviceptr>(&turns.finished),
                    .value = function,
                    .flags = CU_STREAM_WAIT_VALUE_GEQ,
                    .alias = 0};
  enqueue(stream, does, what);
}

void CudaDevice::enqueue_mark(const LaneView& on, const Doing& what) const {
  const std::uint32_t mark = on.host->next_mark();
  CUstreamBatchMemOpParams does{};
  does.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                     .address = reinterpret_cast<CUdeviceptr>(&on.host->turns()->reached),
                     .value = mark,
                     .flags = CU_STREAM_WRITE_VALUE_DEFAULT,
                     .alias = 0};
  enqueue(on.stream, does, what);
  on.host->await_mark(mark);
}

void CudaDevice::record_function(EventId event, LaneId lane, const LaneView& on, const EventSlot& recorded) {
  const auto moment = recorded.timed ? std::make_shared<HostMoment>() : nullptr;
  const std::uint32_t function = recorded.timed ? on.host->point(moment) : on.host->point();
  const MutexLock lock(mutex_);
  EventSlot& slot = events_[event];
  slot.recorded = true;
  slot.turns = on.host->turns();
  slot.function = function;
  slot.moment = moment;
  order_->record(event, lane);
}

void CudaDevice::wait_for_function(const LaneView& waiting, const EventSlot& event) const {
  if (waiting.host == nullptr)
    return enqueue_wait(waiting.stream, *event.turns, event.function, doing("wait"));
  if (event.turns != waiting.host->turns()) waiting.host->await_function(event.turns, event.function);
}

template <class Look>
void CudaDevice::await_function(HostTurns& turns, std::uint32_t function, const Look& look) const {
  constexpr auto between_looks = std::chrono::milliseconds(5);
  while (!turns.await_function(function, between_looks)) look();
}

// A card that has failed writes no mark; any call of it then returns the failure.
void CudaDevice::await_lane(const LaneView& lane, const Doing& what) const {
  await_function(*lane.host->turns(), lane.host->point(),
                 [&] { still_works(cudaStreamQuery(lane.stream), "cudaStreamQuery", what); });
}

void CudaDevice::await_event(const EventSlot& event, const Doing& what) const {
  await_function(*event.turns, event.function,
                 [&] { still_works(cudaEventQuery(event.handle), "cudaEventQuery", what); });
}

CardClock& CudaDevice::clock() {
  {
    const MutexLock lock(mutex_);
    if (clock_ != nullptr) return *clock_;
  }
  auto made = std::make_unique<CardClock>(doing("create_lane"));
  const MutexLock lock(mutex_);
  if (clock_ == nullptr) clock_ = std::move(made);
  return *clock_;
}

cudaError_t CudaDevice::seconds_between(const EventSlot& from, const EventSlot& to, double& seconds) {
  if (from.turns == nullptr && to.turns == nullptr) {
    float milliseconds = 0;
    const cudaError_t state = cudaEventElapsedTime(&milliseconds, from.handle, to.handle);
    seconds = static_cast<double>(milliseconds) * 1e-3;
    return state;
  }
  const auto time_of = [&](const EventSlot& event, HostClock::time_point& at) {
    if (event.turns == nullptr) return clock().time_of(event.handle, at, doing("elapsed_seconds"));
    if (!event.turns->has_finished(event.function)) return cudaErrorNotReady;
    at = *event.moment;
    return cudaSuccess;
  };
  HostClock::time_point begin, end;
  cudaError_t state = time_of(from, begin);
  if (state == cudaSuccess) state = time_of(to, end);
  seconds = std::chrono::duration<double>(end - begin).count();
  return state;
}

void CudaDevice::stop_if_lost(LaneId lane) noexcept {
  if (!first_fault(ordinal_)) return;
  std::shared_ptr<HostWork> host;
  {
    const MutexLock lock(mutex_);
    if (lane < lanes_.size()) host = lanes_[lane].host;
  }
  if (host != nullptr) host->stop();
}

}  // namespace stowage::cuda
