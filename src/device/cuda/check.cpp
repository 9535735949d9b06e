#include "src/device/cuda/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "src/base/mutex.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

constexpr std::array sticky_codes = {cudaErrorECCUncorrectable,    cudaErrorIllegalAddress,
                                     cudaErrorLaunchTimeout,       cudaErrorAssert,
                                     cudaErrorLaunchFailure,       cudaErrorHardwareStackError,
                                     cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
                                     cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,
                                     cudaErrorNvlinkUncorrectable, cudaErrorContextIsDestroyed,
                                     cudaErrorContained,           cudaErrorTensorMemoryLeak,
                                     cudaErrorExternalDevice};

class Faults {
 public:
  void keep(int ordinal, const std::string& message) STOWAGE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    first_.try_emplace(ordinal, message);
  }
  void forget(int ordinal) STOWAGE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    first_.erase(ordinal);
  }
  std::optional<std::string> find(int ordinal) STOWAGE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = first_.find(ordinal);
    return found == first_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  Mutex mutex_;
  std::map<int, std::string> first_ STOWAGE_GUARDED_BY(mutex_);
};

Faults& faults() {
  static auto& all = *new Faults;  // used until the process has ended
  return all;
}

// "copy 'w0': cudaMemcpyAsync of 4096 bytes on device 0 failed: why"
std::string what_failed(std::string_view call, const Doing& doing, int ordinal, std::string_view why) {
  std::string text(doing.function);
  if (!doing.work.empty()) text += fmt::format(" '{}'", doing.work);
  text += fmt::format(": {}", call);
  if (doing.bytes > 0) text += fmt::format(" of {} bytes", doing.bytes);
  return text + fmt::format(" on device {} failed: {}", ordinal, why);
}

int ordinal_of(const Doing& doing) {
  int ordinal = doing.ordinal;
  if (ordinal < 0 && cudaGetDevice(&ordinal) != cudaSuccess) ordinal = 0;
  return ordinal;
}

std::string_view cublas_reason(cublasStatus_t code) {
  switch (code) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "an internal error";
  }
}

}  // namespace

std::string describe(cudaError_t code) {
  return fmt::format("{} ({}): {}", cudaGetErrorName(code), static_cast<int>(code), cudaGetErrorString(code));
}

bool is_sticky(cudaError_t code) {
  return std::find(sticky_codes.begin(), sticky_codes.end(), code) != sticky_codes.end();
}

std::optional<std::string> first_fault(int ordinal) { return faults().find(ordinal); }

void forget_fault(int ordinal) { faults().forget(ordinal); }

void fail(cudaError_t code, std::string_view call, const Doing& doing) {
  cudaGetLastError();  // clears the runtime's error, which is reported here
  const int ordinal = ordinal_of(doing);
  const std::string what = what_failed(call, doing, ordinal, describe(code));
  if (code == cudaErrorMemoryAllocation) {
    throw OutOfMemory(what + ". Release some memory, or ask for less", doing.bytes, 0);
  }
  if (!is_sticky(code)) {
    throw DeviceError(what + ". Repeat the call; CUDA_LAUNCH_BLOCKING=1 in the environment shows what fails",
                      std::string(doing.function), std::string(doing.work));
  }
  faults().keep(ordinal, what);
  throw DeviceError(
      what +
          " (it may come from earlier work). The device is lost to this process: end it, and look "
          "for the cause with compute-sanitizer",
      std::string(doing.function), std::string(doing.work));
}

void fail_cublas(cublasStatus_t code, std::string_view call, const Doing& doing) {
  const std::string why = fmt::format("{} ({})", cublas_reason(code), static_cast<int>(code));
  const std::string what = what_failed(call, doing, ordinal_of(doing), why);
  if (code == CUBLAS_STATUS_ALLOC_FAILED) {
    throw OutOfMemory(what + ". Release some memory, or ask for less", doing.bytes, 0);
  }
  throw DeviceError(what + ". CUBLASLT_LOG_LEVEL=1 in the environment shows what it lacks",
                    std::string(doing.function), std::string(doing.work));
}

}  // namespace stowage::cuda
