// What every function of the fake runtime does first and last.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/fake_cuda/capture.h"
#include "tests/fake_cuda/state.h"

namespace fake_cuda {

inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int current_device = 0;

inline cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Why no call can work now.
inline cudaError_t standing_error() {
  State& state = State::get();
  switch (state.settings().driver) {
    case fake_cuda_no_driver:
      return cudaErrorInsufficientDriver;
    case fake_cuda_no_device:
      return cudaErrorNoDevice;
    case fake_cuda_driver_present:
      break;
  }
  return static_cast<cudaError_t>(state.lost());
}

// Counts the call, then returns the first of: its planned fault, a standing error, what `body` returns. It
// makes no context.
template <class Body>
cudaError_t call_without_context(const char* name, Body body) {
  if (in_host_function) {
    ++State::get().calls_from_host_functions;
    return cudaErrorNotPermitted;
  }
  const int planned = State::get().begin_call(name, cudaErrorUnknown);
  if (planned != 0) return noted(static_cast<cudaError_t>(planned));
  const cudaError_t standing = standing_error();
  return noted(standing != cudaSuccess ? standing : body());
}

// The same, in a context of the thread's current device: the first such call makes it.
template <class Body>
cudaError_t call(const char* name, Body body) {
  return call_without_context(name, [&] {
    State::get().make_context(current_device);
    return body();
  });
}

// The same of a call that may wait or allocate, which a stream capture may forbid.
template <class Body>
cudaError_t unsafe_call(const char* name, Body body) {
  return call(name, [&] {
    const int forbidden = Captures::get().forbids_unsafe_call();
    return forbidden != 0 ? static_cast<cudaError_t>(forbidden) : body();
  });
}

}  // namespace fake_cuda
