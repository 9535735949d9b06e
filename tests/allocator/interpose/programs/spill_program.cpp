// Asks for more than the card has, in the way that its first argument says. Ends with 3 where there is no
// memory.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
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

void* bytes_at(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // the fake's memory is the host's
}

bool nothing_is_left() {
  const fake_cuda_live_objects live = fake_cuda_live();
  return live.device_allocations + live.pinned_allocations + live.reservations + live.physical_allocations +
             live.mappings + live.events ==
         0;
}

// Chunks of the host's memory that stand in the card's place.
std::size_t chunks() {
  const fake_cuda_live_objects live = fake_cuda_live();
  return live.mappings + live.pinned_allocations;
}

// 1.3 times the card, a MiB at a time. Each has bytes of its own, and keeps them.
void overflow(std::size_t card) {
  std::vector<CUdeviceptr> blocks;
  for (std::size_t i = 0; i * mib < card + card * 3 / 10; ++i) {
    CUdeviceptr address = 0;
    const CUresult result = cuMemAlloc(&address, mib);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) std::exit(3);
    ok(result);
    asked("device", mib);
    std::memset(bytes_at(address), static_cast<int>(i), mib);
    blocks.push_back(address);
  }
  require(free_now() == 0, "the card is full, and what is on the host is none of it");
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto* const bytes = static_cast<const unsigned char*>(bytes_at(blocks[i]));
    require(bytes[0] == static_cast<unsigned char>(i) && std::memcmp(bytes, bytes + 1, mib - 1) == 0,
            "no two blocks share bytes");
  }
  for (const CUdeviceptr address : blocks) ok(cuMemFree(address));
  require(free_now() == card && nothing_is_left(), "all is free");
}

// What the driver says of `address`, which is the host's, is what it would say of device memory.
void require_of_the_device(CUdeviceptr address, std::size_t size) {
  CUdeviceptr start = 0, pointer = 0;
  std::size_t bytes = 0;
  unsigned type = 0, managed = 7;
  int device = -1;
  void* host = &start;
  CUcontext context = nullptr, current = nullptr;
  ok(cuCtxGetCurrent(&current));
  ok(cuMemGetAddressRange(&start, &bytes, address + size - 1));
  require(start == address && bytes == size, "the range of an address is its allocation");
  ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1));
  ok(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  ok(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  ok(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
  require(type == CU_MEMORYTYPE_DEVICE && device == 0 && managed == 0 && context == current,
          "it is device memory, each attribute says");
  require(
      cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address) == CUDA_ERROR_INVALID_VALUE,
      "it is nowhere on the host");
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_HOST_POINTER,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  type = 0;
  start = 0;
  bytes = 0;
  device = -1;
  void* data[] = {&type, &start, &bytes, &host, &device, &pointer};
  ok(cuPointerGetAttributes(6, attributes, data, address + 5));
  require(type == CU_MEMORYTYPE_DEVICE && start == address && bytes == size && host == nullptr &&
              device == 0 && pointer == address + 5,
          "they say so together, too");
}

unsigned long long buffer_id(CUdeviceptr address) {
  unsigned long long id = 0;
  ok(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
  return id;
}

// The card has room for a byte.
void every_kind() {
  CUdeviceptr pitched = 0, ordered = 0, pooled = 0, managed = 0, refused = 0;
  std::size_t pitch = 0;
  CUmemoryPool pool = nullptr;
  const CUdeviceptr plain = allocate(1000);
  ok(cuMemAllocPitch(&pitched, &pitch, 700, 20, 4));
  asked("pitched", 14000);
  require(pitch == 1024, "rows begin as the driver's do");
  ok(cuMemAllocAsync(&ordered, 4000, nullptr));
  asked("async", 4000);
  ok(cuDeviceGetDefaultMemPool(&pool, 0));
  ok(cuMemAllocFromPoolAsync(&pooled, 3 * mib, pool, nullptr));
  asked("pool", 3 * mib);
  require_of_the_device(plain, 1000);
  require_of_the_device(pitched, 1024 * 20);
  require_of_the_device(ordered, 4000);
  require_of_the_device(pooled, 3 * mib);
  require(buffer_id(plain) != buffer_id(pitched), "no two have the same number");
  ok(cuMemAllocManaged(&managed, 4000, CU_MEM_ATTACH_GLOBAL));
  asked("managed", 4000);
  unsigned type = 0;
  ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
  require(type == 1, "managed memory stays the driver's");
  require(cuMemAlloc(&refused, 0) == CUDA_ERROR_INVALID_VALUE, "nothing is no allocation");
  require(cuMemAllocPitch(&pitched, &pitch, 700, 20, 3) == CUDA_ERROR_INVALID_VALUE,
          "elements of 3 bytes are none");
  CUmemGenericAllocationHandle handle = 0;
  require(cuMemRetainAllocationHandle(&handle, bytes_at(plain)) == CUDA_ERROR_INVALID_VALUE,
          "it has no handle");
  for (const CUdeviceptr address : {plain, pitched, managed}) ok(cuMemFree(address));
  for (const CUdeviceptr address : {ordered, pooled}) ok(cuMemFreeAsync(address, nullptr));
  require(cuMemFree(plain) != CUDA_SUCCESS, "it was freed");
  require(nothing_is_left(), "all is free");
}

void shares() {
  const CUdeviceptr address = allocate(1000);
  CUipcMemHandle handle{};
  require(cuIpcGetMemHandle(&handle, address) == CUDA_ERROR_INVALID_VALUE, "no other process can open it");
  ok(cuMemFree(address));
}

// A free waits for the device; one in order, for its stream.
void order() {
  CUstream stream = nullptr;
  ok(cuStreamCreate(&stream, 0));
  const CUdeviceptr first = allocate(3 * mib);
  fake_cuda_forget_calls();
  ok(cuMemFree(first));
  require(fake_cuda_calls("cuCtxSynchronize") == 1, "a free waits for the context's work");
  CUdeviceptr second = 0, third = 0, fourth = 0;
  ok(cuMemAllocAsync(&second, 3 * mib, stream));
  asked("async", 3 * mib);
  fake_cuda_hold_driver_work();
  ok(cuMemFreeAsync(second, stream));
  require(chunks() == 1, "the stream's work may still use it");
  ok(cuMemAllocAsync(&third, 3 * mib, stream));
  asked("async", 3 * mib);
  require(third != second && chunks() == 2, "so nobody else gets it");
  ok(cuMemAllocAsync(&fourth, 3 * mib, stream));
  asked("async", 3 * mib);
  require(fake_cuda_calls("cuEventSynchronize") == 1 && chunks() == 2,
          "where the rest is too little, the stream is waited for");
  fake_cuda_hold_driver_work();
  ok(cuMemFreeAsync(third, stream));
  ok(cuCtxSynchronize());
  ok(cuMemFreeAsync(fourth, stream));
  require(nothing_is_left(), "once the work has passed, a later call frees it");
}

// What is captured is the graph's. Memory that was spilled before does not disturb a capture.
void capture() {
  CUstream stream = nullptr, other = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr node = 0, ordered = 0;
  ok(cuStreamCreate(&stream, 0));
  ok(cuStreamCreate(&other, 0));
  fake_cuda_forget_calls();
  ok(cuMemAllocAsync(&ordered, 100, other));
  asked("async", 100);
  ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ok(cuMemAllocAsync(&node, 200, stream));
  asked("graph", 200);
  ok(cuMemFreeAsync(node, stream));
  const CUdeviceptr plain = allocate(300);
  ok(cuMemFreeAsync(ordered, other));
  ok(cuMemFree(plain));
  require(cuMemFree(plain) != CUDA_SUCCESS, "once");
  require(fake_cuda_calls("cuCtxSynchronize") == 0 && chunks() > 0, "nobody can wait, so it is kept back");
  ok(cuStreamEndCapture(stream, &graph));
  ok(cuMemFree(allocate(400)));
  require(fake_cuda_calls("cuCtxSynchronize") == 1 && chunks() == 0, "the next free waits for both");
  ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ok(cuMemFree(allocate(3 * mib)));
  ok(cuStreamEndCapture(stream, &graph));
  ok(cuMemFree(allocate(7 * mib)));
  require(fake_cuda_calls("cuCtxSynchronize") == 3 && chunks() == 0, "so does one that finds no room");
}

void contexts() {
  CUcontext context = nullptr, primary = nullptr;
  ok(cuDevicePrimaryCtxRetain(&primary, 0));
  ok(cuCtxCreate(&context, nullptr, 0, 0));
  allocate(1000);
  CUdeviceptr ordered = 0;
  CUstream stream = nullptr;
  ok(cuStreamCreate(&stream, 0));
  ok(cuMemAllocAsync(&ordered, 1000, stream));
  asked("async", 1000);
  fake_cuda_hold_driver_work();
  ok(cuMemFreeAsync(ordered, stream));
  CUdeviceptr pooled = 0;
  ok(cuMemAllocAsync(&pooled, 1000, stream));
  asked("async", 1000);
  ok(cuCtxDestroy(context));
  ok(cuMemFreeAsync(pooled, nullptr));
  require(chunks() == 0, "a destroyed context takes its memory along, and its events");
  ok(cuCtxSetCurrent(primary));
  allocate(2000);
  ok(cuMemAllocAsync(&ordered, 3 * mib, nullptr));
  asked("async", 3 * mib);
  ok(cuDevicePrimaryCtxReset(0));
  require(chunks() == 0, "so does a reset device");
  allocate(4000);
  ok(cuDevicePrimaryCtxRelease(0));
  require(chunks() == 0, "and the last release");
}

// One allocation of each way, freed again. What fails is told to the program, and leaves things as they were.
void use_once(CUstream stream) {
  CUdeviceptr plain = 0, small = 0, ordered = 0, pitched = 0;
  std::size_t pitch = 0;
  if (cuMemAlloc(&plain, 3 * mib) != CUDA_SUCCESS) plain = 0;
  if (cuMemAlloc(&small, 100) != CUDA_SUCCESS) small = 0;
  if (cuMemAllocPitch(&pitched, &pitch, 100, 10, 4) != CUDA_SUCCESS) pitched = 0;
  if (cuMemAllocAsync(&ordered, 5 * mib, stream) != CUDA_SUCCESS) ordered = 0;
  for (const CUdeviceptr address : {plain, small, pitched}) {
    if (address != 0 && cuMemFree(address) != CUDA_SUCCESS) ok(cuMemFree(address));
  }
  if (ordered != 0 && cuMemFreeAsync(ordered, stream) != CUDA_SUCCESS) ok(cuMemFreeAsync(ordered, stream));
}

// Each call of the driver fails once, one after the other.
void faults() {
  CUstream stream = nullptr;
  CUcontext before = nullptr, after = nullptr;
  ok(cuStreamCreate(&stream, 0));
  ok(cuCtxGetCurrent(&before));
  unsigned nth = 0;
  do {
    fake_cuda_forget_calls();
    ++nth;
    fake_cuda_fail_call(nullptr, nth, nth % 2 == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
    use_once(stream);
    const bool reached = fake_cuda_pending_faults() == 0;
    fake_cuda_forget_calls();
    use_once(stream);
    require(nothing_is_left(), "what could not be freed was freed later");
    ok(cuCtxGetCurrent(&after));
    require(after == before, "the current context is what it was");
    CUcontext popped = nullptr;
    require(cuCtxPopCurrent(&popped) == CUDA_ERROR_INVALID_CONTEXT, "none was left behind");
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    ok(cuThreadExchangeStreamCaptureMode(&mode));
    require(mode == CU_STREAM_CAPTURE_MODE_GLOBAL, "nor a mode of capture");
    if (!reached) break;
  } while (true);
  std::printf("faults %u\n", nth);
}

void fork_and_go_on() {
  const CUdeviceptr mine = allocate(1000);
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr its = 0;
    ok(cuMemAlloc(&its, 2000));
    asked("device", 2000);
    ok(cuMemFree(its));
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ends well");
  ok(cuMemFree(mine));
  require(nothing_is_left(), "all is free");
}

void threads() {
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < 8; ++t) {
    all.emplace_back([t] {
      for (std::size_t i = 1; i <= 100; ++i) {
        CUdeviceptr address = 0;
        ok(cuMemAlloc(&address, 1000 * i));
        std::memset(bytes_at(address), static_cast<int>(t), 1000 * i);
        require_of_the_device(address, 1000 * i);
        const auto* const bytes = static_cast<const unsigned char*>(bytes_at(address));
        require(bytes[0] == t && std::memcmp(bytes, bytes + 1, 1000 * i - 1) == 0, "bytes are one thread's");
        if (i % 2 == 0) {
          ok(cuMemFree(address));
        } else {
          ok(cuMemFreeAsync(address, nullptr));
        }
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  for (std::size_t t = 0; t < 8; ++t) asked("device", std::size_t{1000} * 100 * 101 / 2);
  ok(cuMemFree(allocate(2)));
  require(nothing_is_left(), "all is free");
}

// Those that are smaller than a granule share it, and what is free of it is used again.
void small_ones() {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(allocate(512));
  CUdeviceptr address = 0;
  require(cuMemAlloc(&address, 2) == CUDA_ERROR_OUT_OF_MEMORY, "a granule is full");
  require(chunks() == 1, "they share one");
  ok(cuMemFree(blocks[7]));
  ok(cuMemFree(blocks[9]));
  ok(cuMemFree(blocks[8]));
  address = allocate(1500);
  require(address == blocks[7], "the first gap that is large enough");
  ok(cuMemFree(address));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i < 7 || i > 9) ok(cuMemFree(blocks[i]));
  }
  require(nothing_is_left(), "all is free");
}

// Blocks of all sizes, made and freed in any order: none overlaps another.
void scattered_ones() {
  std::map<CUdeviceptr, std::size_t> blocks;
  std::uint64_t state = 1;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33U) % below;
  };
  for (int i = 0; i < 4000; ++i) {
    if (!blocks.empty() && (blocks.size() > 700 || random(5) < 2)) {
      auto block = blocks.lower_bound(blocks.begin()->first + random(1U << 26U));
      if (block == blocks.end()) block = blocks.begin();
      ok(cuMemFree(block->first));
      blocks.erase(block);
      continue;
    }
    const std::size_t bytes = 1 + random(std::uint64_t{1} << (5 + random(16)));
    CUdeviceptr address = 0;
    ok(cuMemAlloc(&address, bytes));
    asked("device", bytes);
    const auto next = blocks.lower_bound(address);
    require(next == blocks.end() || address + bytes <= next->first, "it ends before the next");
    require(next == blocks.begin() || std::prev(next)->first + std::prev(next)->second <= address,
            "it begins behind the one before");
    blocks[address] = bytes;
  }
  for (const auto& [address, bytes] : blocks) ok(cuMemFree(address));
  require(nothing_is_left(), "all is free");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string source = count > 2 ? arguments[2] : "";
  if (source == "pinned") fake_cuda_set_host_physical(0);
  const std::size_t card = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 0;
  const std::map<std::string, std::function<void()>> ways = {
      {"overflow", [&] { overflow(card); }},
      {"every_kind", every_kind},
      {"shares", shares},
      {"order", order},
      {"capture", capture},
      {"contexts", contexts},
      {"faults", faults},
      {"fork", fork_and_go_on},
      {"threads", threads},
      {"small_ones", small_ones},
      {"scattered_ones", scattered_ones},
  };
  const auto way = ways.find(count > 1 ? arguments[1] : "");
  require(way != ways.end(), "the first argument is known");
  way->second();
  return 0;
}
