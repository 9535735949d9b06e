// Streams that write words of memory and wait for them. The words are those that a host and a card may share:
// here, page-locked memory.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

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

bool is_known(const CUstreamBatchMemOpParams& op) {
  if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
    return op.writeValue.flags == CU_STREAM_WRITE_VALUE_DEFAULT && is_shared_word(op.writeValue.address);
  return op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 && op.waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ &&
         is_shared_word(op.waitValue.address);
}

void perform(const CUstreamBatchMemOpParams& op) {
  auto* const word = reinterpret_cast<Word*>(op.waitValue.address);  // both have it in one place
  if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
    return word->store(op.writeValue.value, std::memory_order_release);
  while (!is_reached(word->load(std::memory_order_acquire), op.waitValue.value) && State::get().lost() == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(10));
}

}  // namespace

extern "C" CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops,
                                          unsigned flags) {
  return driver_call("cuStreamBatchMemOp", [&] {
    if (ops == nullptr || flags != 0 || !std::all_of(ops, ops + count, is_known))
      return CUDA_ERROR_INVALID_VALUE;
    const auto work = [all = std::vector(ops, ops + count)] {
      std::for_each(all.begin(), all.end(), perform);
    };
    return Streams::get().enqueue(stream, work) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
