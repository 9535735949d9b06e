// libcuda: events. The driver's streams do no work of their own; they have some while a test holds it.
#include <cuda.h>

#include <map>
#include <mutex>

#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/driver_memory.h"
#include "tests/fake_cuda/driver_streams.h"

using fake_cuda::capture_forbids_waiting;
using fake_cuda::driver_call;
using fake_cuda::State;

namespace {

struct DriverEvent {
  CUcontext context = nullptr;  // which takes it along
  bool behind_work = false;     // recorded behind work that is held
};

struct DriverEvents {
  std::mutex mutex;
  std::map<char*, DriverEvent> all;
};

DriverEvents& events() {
  static DriverEvents& only = *new DriverEvents;
  return only;
}

// Calls `body` with what is known of the event.
template <class Body>
CUresult with_event(CUevent event, Body body) {
  const std::lock_guard lock(events().mutex);
  const auto found = events().all.find(reinterpret_cast<char*>(event));
  return found == events().all.end() ? CUDA_ERROR_INVALID_HANDLE : body(found->second.behind_work);
}

CUresult record(CUevent event, CUstream stream) {
  if (!fake_cuda::driver_stream_known(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return with_event(event, [](bool& behind_work) {
    behind_work = State::get().driver_work_held;
    return CUDA_SUCCESS;
  });
}

}  // namespace

void fake_cuda::driver_context_ends(CUcontext context) {
  const std::lock_guard lock(events().mutex);
  State::get().driver_work_held = false;
  std::erase_if(events().all, [&](const auto& event) {
    if (event.second.context != context) return false;
    delete event.first;
    --State::get().driver_events;
    return true;
  });
}

extern "C" {

CUresult cuEventCreate(CUevent* event, unsigned) {
  return driver_call(__func__, [&] {
    CUcontext context = nullptr;
    if (event == nullptr || cuCtxGetCurrent(&context) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(events().mutex);
    *event = reinterpret_cast<CUevent>(events().all.emplace(new char, DriverEvent{context}).first->first);
    ++State::get().driver_events;
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return driver_call(__func__, [&] { return record(event, stream); });
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return driver_call(__func__, [&] { return record(event, stream); });
}

CUresult cuEventQuery(CUevent event) {
  return driver_call(__func__, [&] {
    if (capture_forbids_waiting()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return with_event(event, [](bool behind_work) {
      return behind_work && State::get().driver_work_held ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    });
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return driver_call(__func__, [&] {
    if (capture_forbids_waiting()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return with_event(event, [](bool behind_work) {
      if (behind_work) State::get().driver_work_held = false;
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuEventDestroy_v2(CUevent event) {
  return driver_call(__func__, [&] {
    char* const known = reinterpret_cast<char*>(event);
    const std::lock_guard lock(events().mutex);
    if (events().all.erase(known) == 0) return CUDA_ERROR_INVALID_HANDLE;
    delete known;
    --State::get().driver_events;
    return CUDA_SUCCESS;
  });
}
}
