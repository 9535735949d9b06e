// Streams that write words of memory and wait for them. The words are those that a host and a card may share:
// here, page-locked memory.
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "tests/fake_cuda/driver_call.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/stream.h"

using fake_cuda::driver_call;
using fake_cuda::Memory;
using fake_cuda::State;
using fake_cuda::Streams;

namespace {

using Word = std::atomic<std::uint32_t>;

bool is_shared_word(CUdeviceptr address) {
  const auto range = Memory::get().range_of(reinterpret_cast<void*>(address));
  return address % sizeof(Word) == 0 && range && !range->on_device();
}

bool is_reached(std::uint32_t now, std::uint32_t value) {
  return static_cast<std::int32_t>(now - value) >= 0;
}

template <class Work>
CUresult enqueue(CUstream stream, CUdeviceptr address, bool flags_are_known, Work work) {
  if (!flags_are_known || !is_shared_word(address)) return CUDA_ERROR_INVALID_VALUE;
  const bool valid = Streams::get().enqueue(stream, std::move(work)).has_value();
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

extern "C" {

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return driver_call("cuStreamWriteValue32", [&] {
    auto* const word = reinterpret_cast<Word*>(address);
    return enqueue(stream, address, flags == CU_STREAM_WRITE_VALUE_DEFAULT,
                   [word, value] { word->store(value, std::memory_order_release); });
  });
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return driver_call("cuStreamWaitValue32", [&] {
    const auto* const word = reinterpret_cast<const Word*>(address);
    return enqueue(stream, address, flags == CU_STREAM_WAIT_VALUE_GEQ, [word, value] {
      while (!is_reached(word->load(std::memory_order_acquire), value) && State::get().lost() == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(10));
    });
  });
}
}
