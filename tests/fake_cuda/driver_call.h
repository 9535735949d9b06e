// How every function of the fake driver begins: it is counted, and may fail as planned.
#pragma once

#include <cuda.h>

#include "tests/fake_cuda/state.h"

namespace fake_cuda {

inline CUresult driver_standing_error() {
  switch (State::get().settings().driver) {
    case fake_cuda_no_driver:
      return CUDA_ERROR_STUB_LIBRARY;
    case fake_cuda_no_device:
      return CUDA_ERROR_NO_DEVICE;
    case fake_cuda_driver_present:
      break;
  }
  return static_cast<CUresult>(State::get().lost());
}

template <class Body>
CUresult driver_call(const char* name, Body body) {
  if (in_host_function) {
    ++State::get().calls_from_host_functions;
    return CUDA_ERROR_NOT_PERMITTED;
  }
  const int planned = State::get().begin_call(name, CUDA_ERROR_UNKNOWN);
  if (planned != 0) return static_cast<CUresult>(planned);
  const CUresult standing = driver_standing_error();
  return standing != CUDA_SUCCESS ? standing : body();
}

template <class Value>
CUresult give(Value* to, Value value) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *to = value;
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda
