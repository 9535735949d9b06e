// Turns return codes of CUDA, its driver and cuBLASLt into typed errors: OutOfMemory if memory ran out, else
// DeviceError. The message names the Device function, the work, the CUDA call, the device and the bytes.
//
// A fault of the card (an illegal address, a failed assertion, a lost link …) is sticky: the context is gone.
// The first fault of each device is kept here, and every later call names it. Thread-safe.
#pragma once

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <string>
#include <string_view>

#include "stowage/bytes.h"

namespace stowage::cuda {

// The parts of an error message that say which call failed.
struct Doing {
  std::string_view function;   // the Device function: "copy"; becomes DeviceError::call()
  std::string_view work = {};  // the launch's or copy's name
  int ordinal = -1;            // number of the device; -1: the calling thread's current device
  Bytes bytes = 0;             // 0: not told
};

[[noreturn]] void fail(cudaError_t code, std::string_view call, const Doing& doing);
[[noreturn]] void fail_cublas(cublasStatus_t code, std::string_view call, const Doing& doing);

inline void check(cudaError_t code, std::string_view call, const Doing& doing) {
  if (code != cudaSuccess) fail(code, call, doing);
}
inline void check(CUresult code, std::string_view call, const Doing& doing) {
  // The runtime gives the driver's codes the same numbers.
  if (code != CUDA_SUCCESS) fail(static_cast<cudaError_t>(code), call, doing);
}
inline void check(cublasStatus_t code, std::string_view call, const Doing& doing) {
  if (code != CUBLAS_STATUS_SUCCESS) fail_cublas(code, call, doing);
}

// Checks a call of a kernel's launcher: inside Device::launch, on the current device.
template <class Code>
void check(Code code, std::string_view call, std::string_view work = {}) {
  check(code, call, Doing{"launch", work});
}

bool is_sticky(cudaError_t code);
// The first sticky failure of a device, if there was one.
std::optional<std::string> first_fault(int ordinal);
// Forgets the device's fault: its context is known to work (again).
void forget_fault(int ordinal);

// "cudaErrorNoDevice (100): no CUDA-capable device is detected"
std::string describe(cudaError_t code);

}  // namespace stowage::cuda
