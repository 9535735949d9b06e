// Uses the driver alone, in the way that its first argument says.
#include <cuda.h>
#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/interpose/programs/driver_calls.h"

namespace {

constexpr std::size_t granule = std::size_t{2} << 20;

CUmemAllocationProp on_the_card() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  return prop;
}

// What the driver says of an address is what was allocated.
void every_kind() {
  CUdeviceptr pitched = 0, managed = 0, ordered = 0, pooled = 0, start = 0;
  std::size_t pitch = 0, bytes = 0;
  CUmemoryPool pool = nullptr;
  unsigned is_managed = 0;
  const CUdeviceptr plain = allocate(1000);
  ok(cuMemAllocPitch(&pitched, &pitch, 100, 20, 4));
  asked("pitched", 2000);
  ok(cuMemAllocManaged(&managed, 3000, CU_MEM_ATTACH_GLOBAL));
  asked("managed", 3000);
  ok(cuMemAllocAsync(&ordered, 4000, nullptr));
  asked("async", 4000);
  ok(cuDeviceGetDefaultMemPool(&pool, 0));
  ok(cuMemAllocFromPoolAsync(&pooled, 5000, pool, nullptr));
  asked("pool", 5000);
  ok(cuMemGetAddressRange(&start, &bytes, plain + 10));
  require(start == plain && bytes == 1000, "the range of an address is its allocation");
  ok(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
  require(is_managed == 1, "managed memory is managed");
  for (const CUdeviceptr address : {plain, pitched, managed}) ok(cuMemFree(address));
  for (const CUdeviceptr address : {ordered, pooled}) ok(cuMemFreeAsync(address, nullptr));
}

void virtual_memory() {
  const std::size_t before = free_now();
  const CUmemAllocationProp prop = on_the_card();
  CUmemGenericAllocationHandle kept = 0, mapped = 0;
  CUdeviceptr address = 0;
  ok(cuMemCreate(&kept, granule, &prop, 0));
  asked("physical", granule);
  ok(cuMemCreate(&mapped, 2 * granule, &prop, 0));
  asked("physical", 2 * granule);
  ok(cuMemAddressReserve(&address, 2 * granule, 0, 0, 0));
  ok(cuMemMap(address, 2 * granule, 0, mapped, 0));
  ok(cuMemRelease(mapped));
  require(before - free_now() == 3 * granule, "mapped memory stays after its handle went");
  ok(cuMemUnmap(address, 2 * granule));
  require(before - free_now() == granule, "memory without handle and mapping goes");
  ok(cuMemRelease(kept));
  ok(cuMemAddressFree(address, 2 * granule));
  require(free_now() == before, "all of it went");
}

// The second argument is the limit.
void limit(const char* text) {
  const std::size_t most = std::strtoull(text, nullptr, 10);
  std::size_t total = 0, free = 0, device_total = 0;
  ok(cuMemGetInfo(&free, &total));
  ok(cuDeviceTotalMem(&device_total, 0));
  require(total == most && device_total == most && free == most, "the card looks as large as the limit");
  const CUdeviceptr half = allocate(most / 2);
  require(free_now() == most - most / 2, "what is free follows");
  CUdeviceptr address = 0, pitched = 0, managed = 0;
  std::size_t pitch = 0;
  require(cuMemAlloc(&address, most / 2 + 1) == CUDA_ERROR_OUT_OF_MEMORY, "a byte too much");
  require(cuMemAllocAsync(&address, most, nullptr) == CUDA_ERROR_OUT_OF_MEMORY, "in order, too");
  require(cuMemAllocPitch(&pitched, &pitch, most, 1, 4) == CUDA_ERROR_OUT_OF_MEMORY, "in rows, too");
  const CUmemAllocationProp prop = on_the_card();
  CUmemGenericAllocationHandle handle = 0;
  require(cuMemCreate(&handle, most, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY, "and physical");
  ok(cuMemAllocManaged(&managed, most, CU_MEM_ATTACH_GLOBAL));
  asked("managed", most);
  ok(cuMemFree(managed));
  const CUdeviceptr rest = allocate(most - most / 2);
  require(free_now() == 0, "all is taken");
  ok(cuMemFree(half));
  ok(cuMemFree(rest));
  require(free_now() == most, "all is free");
}

void info() {
  std::size_t total = 0, free = 0, device_total = 0;
  ok(cuMemGetInfo(&free, &total));
  ok(cuDeviceTotalMem(&device_total, 0));
  std::printf("%zu %zu %zu\n", free, total, device_total);
}

void capture() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr node = 0;
  ok(cuStreamCreate(&stream, 0));
  const CUdeviceptr plain = allocate(100);
  ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ok(cuMemAllocAsync(&node, 200, stream));
  asked("graph", 200);
  ok(cuMemFreeAsync(node, stream));
  ok(cuStreamEndCapture(stream, &graph));
  ok(cuMemFree(plain));
  ok(cuStreamDestroy(stream));
}

// Contexts that go take their memory along.
void contexts(const char* text) {
  const std::size_t most = std::strtoull(text, nullptr, 10);
  CUcontext context = nullptr, primary = nullptr;
  ok(cuCtxCreate(&context, nullptr, 0, 0));
  allocate(1000);
  ok(cuCtxDestroy(context));
  require(free_now() == most, "a destroyed context's memory is free");
  ok(cuDevicePrimaryCtxRetain(&primary, 0));
  allocate(2000);
  CUdeviceptr ordered = 0;
  ok(cuMemAllocAsync(&ordered, 3000, nullptr));
  asked("async", 3000);
  ok(cuDevicePrimaryCtxReset(0));
  require(free_now() == most, "a reset device's memory is free");
  allocate(4000);
  ok(cuDevicePrimaryCtxRelease(0));
  require(free_now() == most, "the memory of a primary context that nobody holds is free");
}

void fork_and_go_on() {
  const CUdeviceptr mine = allocate(1000);
  const pid_t child = fork();
  if (child == 0) {
    const CUdeviceptr its = allocate(2000);
    ok(cuMemFree(its));
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ends well");
  ok(cuMemFree(mine));
}

// Exports memory, and runs this program again to open it.
void export_memory(const char* program) {
  const CUdeviceptr address = allocate(64);
  std::memset(reinterpret_cast<void*>(address), 'x', 64);  // the fake's device memory
  CUipcMemHandle handle{};
  ok(cuIpcGetMemHandle(&handle, address));
  std::string text;
  for (const char byte : handle.reserved) {
    const char digits[] = "0123456789abcdef";
    text += digits[(static_cast<unsigned char>(byte) >> 4) & 15];
    text += digits[static_cast<unsigned char>(byte) & 15];
  }
  const pid_t child = fork();
  if (child == 0) {
    execl(program, program, "open", text.c_str(), nullptr);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process sees the memory");
  ok(cuMemFree(address));
}

void open_memory(const std::string& text) {
  CUipcMemHandle handle{};
  for (std::size_t i = 0; i < sizeof(handle.reserved); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  CUdeviceptr address = 0;
  ok(cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  require(*reinterpret_cast<const char*>(address) == 'x', "the bytes are the other process's");
  ok(cuIpcCloseMemHandle(address));
}

void threads() {
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < 4; ++t) {
    all.emplace_back([] {
      for (std::size_t i = 1; i <= 200; ++i) {
        CUdeviceptr address = 0;
        ok(cuMemAlloc(&address, i));
        ok(cuMemFree(address));
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  for (std::size_t t = 0; t < 4; ++t) asked("device", 200 * 201 / 2);
}

// Handles of streams come back; the record must tell them apart.
void streams() {
  for (int i = 0; i < 2; ++i) {
    CUstream stream = nullptr;
    CUdeviceptr address = 0;
    ok(cuStreamCreate(&stream, 0));
    ok(cuMemAllocAsync(&address, 10, stream));
    asked("async", 10);
    ok(cuMemFreeAsync(address, stream));
    ok(cuStreamDestroy(stream));
  }
}

void plugin(const char* path, int how) {
  void* const library = dlopen(path, RTLD_NOW | how);
  require(library != nullptr, "the plugin is opened");
  reinterpret_cast<void (*)()>(dlsym(library, "use_the_driver"))();
}

std::string object_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) == 0 ? "" : info.dli_fname;
}

// What must stay as it is: functions of older and of newer signatures, other libraries', and RTLD_NEXT.
void lookups() {
  void *old_one = nullptr, *new_one = nullptr, *known = nullptr;
  CUdriverProcAddressQueryResult status{};
  ok(cuGetProcAddress("cuMemAlloc", &old_one, 2000, 0, &status));
  ok(cuGetProcAddress("cuMemAlloc", &new_one, 99000, 0, &status));
  ok(cuGetProcAddress("cuMemAlloc", &known, 13000, 0, &status));
  require(object_of(old_one).ends_with("libcuda.so.1") && object_of(new_one).ends_with("libcuda.so.1"),
          "functions of another signature are the driver's");
  require(known == reinterpret_cast<void*>(&cuMemAlloc_v2), "one name, one function");
  require(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == known, "the default is what is linked");
  const std::string next = object_of(dlsym(RTLD_NEXT, "dlsym"));
  require(next.ends_with("libstowage_preload.so"), "the next behind the program, not behind the library");
  require(dlsym(RTLD_DEFAULT, "no_such_symbol") == nullptr && dlerror() != nullptr,
          "errors are the loader's");
  require(cuGetProcAddress("cuNoSuchFunction", &known, 13000, 0, &status) == CUDA_ERROR_NOT_FOUND &&
              status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
          "what the driver has not is not there");
}

// Programs with and without the libraries in their environment, and one that is not there.
void starts() {
  char name[] = "true";
  char* words[] = {name, nullptr};
  char* nothing[] = {nullptr};
  const auto wait_for = [](pid_t child) {
    int status = 0;
    require(waitpid(child, &status, 0) == child && status == 0, "the child ends well");
  };
  pid_t child = 0;
  require(posix_spawnp(&child, "true", nullptr, nullptr, words, nothing) == 0, "it is started");
  wait_for(child);
  require(posix_spawnp(&child, "true", nullptr, nullptr, words, environ) == 0, "it is started");
  wait_for(child);
  require(posix_spawnp(&child, "no_such_program", nullptr, nullptr, words, nothing) != 0, "it is not there");
  for (char** const environment : {nothing, environ}) {
    child = fork();
    if (child == 0) {
      execve("/no_such_program", words, environment);
      execvpe("true", words, environment);
      _exit(1);
    }
    wait_for(child);
  }
  child = fork();
  if (child == 0) {
    clearenv();
    execvp("true", words);
    _exit(1);
  }
  wait_for(child);
  ok(cuMemFree(allocate(100)));
}

void drop_privileges() {
  allocate(100);
  require(setuid(65534) == 0, "root may");
  CUdeviceptr unseen = 0;
  ok(cuMemAlloc(&unseen, 200));
}

void crash() {
  for (std::size_t i = 0; i < 500; ++i) allocate(16);
  std::abort();
}

void leave_at_once() {
  allocate(1000);
  _exit(7);
}

}  // namespace

int main(int count, char** arguments) {
  const char* const argument = count > 2 ? arguments[2] : "";
  const std::map<std::string, std::function<void()>> ways = {
      {"every_kind", every_kind},
      {"virtual_memory", virtual_memory},
      {"limit", [&] { limit(argument); }},
      {"info", info},
      {"capture", capture},
      {"contexts", [&] { contexts(argument); }},
      {"fork", fork_and_go_on},
      {"export", [&] { export_memory(arguments[0]); }},
      {"open", [&] { open_memory(argument); }},
      {"threads", threads},
      {"streams", streams},
      {"plugin", [&] { plugin(argument, RTLD_LOCAL); }},
      {"deep_plugin", [&] { plugin(argument, RTLD_DEEPBIND); }},
      {"lookups", lookups},
      {"starts", starts},
      {"drop_privileges", drop_privileges},
      {"crash", crash},
      {"leave_at_once", leave_at_once},
  };
  const auto way = ways.find(count > 1 ? arguments[1] : "");
  require(way != ways.end(), "the first argument is known");
  way->second();
  return 0;
}
