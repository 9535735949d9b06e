// libcudart: streams, events, host functions.
#include "tests/fake_cuda/cudart_call.h"
#include "tests/fake_cuda/device.h"
#include "tests/fake_cuda/host_turn.h"
#include "tests/fake_cuda/stream.h"

using fake_cuda::call;
using fake_cuda::Captures;
using fake_cuda::State;
using fake_cuda::Streams;

namespace {

cudaError_t valid_handle(bool valid) { return valid ? cudaSuccess : cudaErrorInvalidResourceHandle; }
// Calls `body` unless `error` says why not.
template <class Body>
cudaError_t unless(int error, Body body) {
  return error != 0 ? static_cast<cudaError_t>(error) : body();
}

char the_graph;  // nobody looks into it
cudaError_t lost() { return static_cast<cudaError_t>(State::get().lost()); }

cudaError_t create_stream(cudaStream_t* stream, unsigned flags, int priority) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
  *stream = static_cast<cudaStream_t>(Streams::get().create(flags, priority));
  return cudaSuccess;
}

cudaError_t create_event(cudaEvent_t* event, unsigned flags) {
  if (event == nullptr) return cudaErrorInvalidValue;
  *event = static_cast<cudaEvent_t>(Streams::get().create_event(flags));
  return cudaSuccess;
}

template <class Use>
cudaError_t with_stream(cudaStream_t handle, Use use) {
  const fake_cuda::Stream* stream = Streams::get().find(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  return use(*stream);
}

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  return unless(Captures::get().record(event, stream),
                [&] { return valid_handle(Streams::get().record(event, stream)); });
}

cudaError_t elapsed(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const auto start = Streams::get().find_event(from);
  const auto end = Streams::get().find_event(to);
  if (milliseconds == nullptr) return cudaErrorInvalidValue;
  for (const auto& event : {start, end}) {
    const bool timed = event && (event->flags & cudaEventDisableTiming) == 0 && event->latest != nullptr;
    if (!timed) return cudaErrorInvalidResourceHandle;
  }
  if (!start->latest->done() || !end->latest->done()) return cudaErrorNotReady;
  const auto nanoseconds = end->latest->nanoseconds.load() - start->latest->nanoseconds.load();
  *milliseconds = static_cast<float>(static_cast<double>(nanoseconds) * 1e-6);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call(__func__, [&] { return create_stream(stream, 0, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call(__func__, [&] { return create_stream(stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call(__func__, [&] { return create_stream(stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call(__func__, [&] { return valid_handle(Streams::get().destroy(stream)); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call(__func__, [&] {
    return unless(Captures::get().forbids_waiting_for(stream), [&] {
      const cudaError_t error = valid_handle(Streams::get().synchronise(stream));
      return error == cudaSuccess ? lost() : error;
    });
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call(__func__, [&] {
    return with_stream(handle, [&](const fake_cuda::Stream& stream) {
      return unless(Captures::get().forbids_waiting_for(handle), [&] {
        if (!stream.done(stream.last())) return cudaErrorNotReady;
        return lost();
      });
    });
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return call(__func__, [&] {
    return with_stream(handle, [&](const fake_cuda::Stream& stream) {
      *flags = stream.flags();
      return cudaSuccess;
    });
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return call(__func__, [&] {
    return with_stream(handle, [&](const fake_cuda::Stream& stream) {
      *priority = stream.priority();
      return cudaSuccess;
    });
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call(__func__, [&] {
    if (Streams::get().find(handle) == nullptr) return cudaErrorInvalidResourceHandle;
    return static_cast<cudaError_t>(Captures::get().status(handle, reinterpret_cast<int*>(status)));
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call(__func__, [&] {
    return static_cast<cudaError_t>(Captures::get().exchange_mode(reinterpret_cast<int*>(mode)));
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call(__func__, [&] {
    return with_stream(handle, [&](const fake_cuda::Stream& stream) {
      const bool blocking = (stream.flags() & cudaStreamNonBlocking) == 0;
      return static_cast<cudaError_t>(Captures::get().begin(handle, mode, blocking));
    });
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call(__func__, [&] {
    return unless(Captures::get().end(handle), [&] {
      *graph = reinterpret_cast<cudaGraph_t>(&the_graph);
      return cudaSuccess;
    });
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call(__func__, [&] {
    return unless(Captures::get().wait(stream, event),
                  [&] { return valid_handle(Streams::get().wait(stream, event)); });
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* context) {
  return call(__func__, [&] {
    if (function == nullptr) return cudaErrorInvalidValue;
    const auto run = [function, context] {
      const fake_cuda::HostTurn turn;
      fake_cuda::in_host_function = true;
      function(context);
      fake_cuda::in_host_function = false;
    };
    return valid_handle(Streams::get().enqueue(stream, run).has_value());
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call(__func__, [&] { return create_event(event, 0); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call(__func__, [&] { return create_event(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(__func__, [&] {
    Captures::get().forget_event(event);
    return valid_handle(Streams::get().destroy_event(event));
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call(__func__, [&] { return record(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return call(__func__, [&] { return record(event, stream); });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call(__func__, [&] {
    const auto event = Streams::get().find_event(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    return unless(Captures::get().ask(handle), [&] {
      if (event->latest != nullptr && !event->latest->done()) return cudaErrorNotReady;
      return lost();
    });
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call(__func__, [&] {
    const auto event = Streams::get().find_event(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    if ((event->flags & cudaEventBlockingSync) == 0) ++State::get().spinning_waits;
    return unless(Captures::get().ask(handle), [&] {
      if (event->latest != nullptr) event->latest->wait();
      return lost();
    });
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return call(__func__, [&] { return elapsed(milliseconds, from, to); });
}
}
