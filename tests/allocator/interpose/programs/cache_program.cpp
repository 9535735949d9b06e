// Allocates and frees in its primary context, in the way that its first argument says, under `stowage run
// --cache`.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/interpose/programs/driver_calls.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

// What was freed is given out again without a call that takes memory; the free waits for the device.
void reuse() {
  const std::size_t before = free_now();
  const CUdeviceptr first = allocate(3 * mib);
  require(before - free_now() >= 3 * mib, "it is the card's memory");
  fake_cuda_forget_calls();
  ok(cuMemFree(first));
  require(fake_cuda_calls("cuCtxSynchronize") == 1, "a free waits for the context's work");
  require(free_now() == before, "what is kept shows as free");
  require(fake_cuda_live().mappings > 0, "but it is kept");
  const CUdeviceptr second = allocate(3 * mib);
  require(second == first && fake_cuda_calls("cuMemCreate") == 0, "it is given out again");
  fake_cuda_fail_call("cuCtxSynchronize", 1, CUDA_ERROR_LAUNCH_FAILED);
  require(cuMemFree(second) == CUDA_ERROR_LAUNCH_FAILED, "what cannot be waited for");
  std::memset(reinterpret_cast<void*>(second), 1, 3 * mib);
  ok(cuMemFreeAsync(second, nullptr));
  require(cuMemFree(second) != CUDA_SUCCESS, "it was freed");
}

void queries() {
  const CUdeviceptr first = allocate(1000), second = allocate(2000);
  for (const auto& [address, size] : {std::pair(first, 1000), std::pair(second, 2000)}) {
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    CUcontext context = nullptr, current = nullptr;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_CONTEXT};
    void* data[] = {&start, &bytes, &context};
    ok(cuCtxGetCurrent(&current));
    ok(cuPointerGetAttributes(3, attributes, data, address + 10));
    require(start == address && bytes == std::size_t(size) && context == current,
            "each is its own allocation");
    ok(cuMemGetAddressRange(&start, &bytes, address + 10));
    require(start == address && bytes == std::size_t(size), "so says its range");
  }
  CUipcMemHandle shared{};
  CUmemGenericAllocationHandle handle = 0;
  require(cuIpcGetMemHandle(&shared, first) == CUDA_ERROR_INVALID_VALUE, "it cannot be exported");
  require(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(first)) == CUDA_ERROR_INVALID_VALUE,
          "it has no handle");
  ok(cuMemFree(first));
  ok(cuMemFree(second));
}

// The card has room for 20 MiB.
void room() {
  ok(cuMemFree(allocate(16 * mib)));
  CUdeviceptr ordered = 0;
  ok(cuMemAllocAsync(&ordered, 16 * mib, nullptr));
  asked("async", 16 * mib);
  ok(cuMemFreeAsync(ordered, nullptr));
  ok(cuMemFree(allocate(16 * mib)));
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle handle = 0;
  ok(cuMemCreate(&handle, 16 * mib, &prop, 0));
  asked("physical", 16 * mib);
  ok(cuMemRelease(handle));
  ok(cuMemFree(allocate(18 * mib)));
}

void ends() {
  CUcontext context = nullptr, primary = nullptr;
  ok(cuCtxGetCurrent(&primary));
  const CUdeviceptr first = allocate(3 * mib);
  ok(cuDevicePrimaryCtxReset(0));
  require(fake_cuda_live().mappings == 0 && fake_cuda_live().physical_allocations == 0,
          "a reset takes it along");
  require(cuMemFree(first) != CUDA_SUCCESS, "it is gone");
  allocate(3 * mib);
  ok(cuCtxCreate(&context, nullptr, 0, 0));
  allocate(1000);
  require(fake_cuda_live().device_allocations == 1, "what a context takes along is the driver's");
  ok(cuCtxDestroy(context));
  require(fake_cuda_live().device_allocations == 0 && fake_cuda_live().mappings > 0, "and nothing else goes");
  ok(cuCtxSetCurrent(primary));
  ok(cuDevicePrimaryCtxRelease(0));
  require(fake_cuda_live().mappings == 0 && fake_cuda_live().reservations == 0, "the last release takes all");
}

void faults() {
  CUcontext context = nullptr;
  for (unsigned nth = 1;; ++nth) {
    fake_cuda_forget_calls();
    fake_cuda_fail_call(nullptr, nth, nth % 2 == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    for (const std::size_t bytes : {3 * mib, std::size_t{100}, 20 * mib}) {  // the last in several pieces
      CUdeviceptr address = 0;
      if (cuMemAlloc(&address, bytes) != CUDA_SUCCESS) continue;
      std::memset(reinterpret_cast<void*>(address), 1, bytes);
      if (cuMemFree(address) != CUDA_SUCCESS) ok(cuMemFree(address));
    }
    if (fake_cuda_pending_faults() > 0) {
      std::printf("faults %u\n", nth);
      return;
    }
    ok(cuDevicePrimaryCtxReset(0));
    const fake_cuda_live_objects live = fake_cuda_live();
    require(live.device_allocations == 0 && live.physical_allocations == 0 && live.mappings == 0,
            "nothing is left behind");
    ok(cuCtxGetCurrent(&context));
  }
}

void fork_and_go_on() {
  const CUdeviceptr mine = allocate(1000);
  const pid_t child = fork();
  if (child == 0) {
    ok(cuMemFree(allocate(2000)));
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ends well");
  ok(cuMemFree(mine));
}

void threads() {
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < 8; ++t) {
    all.emplace_back([t] {
      for (std::size_t i = 1; i <= 200; ++i) {
        CUdeviceptr address = 0;
        ok(cuMemAlloc(&address, 1000 * i));
        std::memset(reinterpret_cast<void*>(address), static_cast<int>(t), 1000 * i);
        const auto* const bytes = reinterpret_cast<const unsigned char*>(address);
        require(std::memcmp(bytes, bytes + 1, 1000 * i - 1) == 0, "bytes are one thread's");
        ok(cuMemFree(address));
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  for (std::size_t t = 0; t < 8; ++t) asked("device", std::size_t{1000} * 200 * 201 / 2);
}

// A free during a capture disturbs it in no mode: nobody waits, and nobody gets the block before someone has.
void capture() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  ok(cuStreamCreate(&stream, 0));
  for (const CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    const CUdeviceptr first = allocate(3 * mib), second = allocate(3 * mib);
    ok(cuStreamBeginCapture(stream, mode));
    require(cuMemFreeAsync(second, stream) == CUDA_ERROR_INVALID_VALUE, "it is no graph's");
    ok(cuMemFree(first));
    require(cuMemFree(first) != CUDA_SUCCESS, "once");
    const CUdeviceptr third = allocate(3 * mib);
    require(third != first, "nobody gets what may be in use");
    ok(cuStreamEndCapture(stream, &graph));
    fake_cuda_forget_calls();
    ok(cuMemFree(second));
    require(fake_cuda_calls("cuCtxSynchronize") == 1, "the next free waits");
    const CUdeviceptr fourth = allocate(3 * mib), fifth = allocate(3 * mib);
    require((fourth == first && fifth == second) || (fourth == second && fifth == first), "for both");
    for (const CUdeviceptr address : {third, fourth, fifth}) ok(cuMemFree(address));
  }
  ok(cuStreamDestroy(stream));
}

// A capture that another thread begins while a free waits.
void capture_during_a_wait() {
  static CUstream stream = nullptr;
  static std::thread other;
  static std::atomic<bool> begun = false;
  ok(cuStreamCreate(&stream, 0));
  const auto begin = [](void*) {
    other = std::thread([] {
      ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      begun = true;
    });
    for (int i = 0; i < 10000 && !begun; ++i) std::this_thread::yield();
  };
  fake_cuda_during_call("cuCtxSynchronize", begin, nullptr);
  ok(cuMemFree(allocate(1000)));
  other.join();
  CUgraph graph = nullptr;
  ok(cuStreamEndCapture(stream, &graph));  // with its work: it began behind the wait
  ok(cuStreamDestroy(stream));
}

// Another thread gets the block before the free that gave it back has returned: the free's last call of the
// driver restores the thread's mode of captures.
void again() {
  static CUdeviceptr block = 0, hit = 0;
  block = allocate(mib);
  const auto ask = [](void*) { hit = allocate(mib); };
  const auto wait_for_the_last = [](void* last) {
    fake_cuda_during_call("cuThreadExchangeStreamCaptureMode", reinterpret_cast<void (*)(void*)>(last),
                          nullptr);
  };
  fake_cuda_during_call("cuCtxSynchronize", wait_for_the_last,
                        reinterpret_cast<void*>(static_cast<void (*)(void*)>(ask)));
  ok(cuMemFree(block));
  require(hit == block, "another thread has it before the free returns");
  ok(cuMemFree(hit));
}

// A block is freed and given out again while the driver maps memory for another thread.
void meanwhile() {
  static CUdeviceptr block = 0, hit = 0;
  block = allocate(mib);
  const auto ask = [](void*) {
    ok(cuMemFree(block));
    hit = allocate(mib);
  };
  fake_cuda_during_call("cuMemSetAccess", ask, nullptr);
  const CUdeviceptr mapped = allocate(64 * mib);
  require(hit == block, "nobody waits for memory that another maps");
  ok(cuMemFree(hit));
  ok(cuMemFree(mapped));
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string, std::function<void()>> ways = {
      {"reuse", reuse},
      {"queries", queries},
      {"room", room},
      {"ends", ends},
      {"faults", faults},
      {"fork", fork_and_go_on},
      {"threads", threads},
      {"meanwhile", meanwhile},
      {"again", again},
      {"capture", capture},
      {"capture_during_a_wait", capture_during_a_wait},
  };
  CUcontext primary = nullptr;
  ok(cuDevicePrimaryCtxRetain(&primary, 0));
  ok(cuCtxSetCurrent(primary));
  const auto way = ways.find(count > 1 ? arguments[1] : "");
  require(way != ways.end(), "the first argument is known");
  way->second();
  return 0;
}
