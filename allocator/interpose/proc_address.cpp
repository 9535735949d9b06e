// cuGetProcAddress: the driver answers first, at the version asked for; then the answer is replaced.
#include "allocator/interpose/driver.h"
#include "allocator/interpose/replacements.h"
#include "allocator/interpose/substitute.h"

using stowage::interpose::call_real;
using stowage::interpose::Entry;
using stowage::interpose::Outermost;
using stowage::interpose::substitute_answer;

extern "C" {

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result =
      call_real<decltype(cuGetProcAddress)>(Entry::get_proc_address_v1, symbol, function, version, flags);
  if (outermost && result == CUDA_SUCCESS && *function != nullptr) {
    *function = substitute_answer(symbol, *function, version);
  }
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  const Outermost outermost(__builtin_return_address(0));
  const CUresult result = call_real<decltype(cuGetProcAddress_v2)>(Entry::get_proc_address, symbol, function,
                                                                   version, flags, status);
  if (outermost && result == CUDA_SUCCESS && *function != nullptr) {
    *function = substitute_answer(symbol, *function, version);
  }
  return result;
}
}
