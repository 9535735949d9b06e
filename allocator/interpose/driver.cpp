#include "allocator/interpose/driver.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace stowage::interpose {
namespace {

using Dlsym = void*(void*, const char*);

std::array<std::atomic<void*>, entry_count> real_functions{};
thread_local bool inside = false;

void* find_dlsym() {
  // glibc 2.34 moved it from libdl to libc, under a new version beside the old one.
  for (const char* const version : {"GLIBC_2.34", "GLIBC_2.2.5"}) {
    if (void* const found = dlvsym(RTLD_NEXT, "dlsym", version)) return found;
  }
  std::abort();  // every known glibc has one of the versions
}

// Addresses of the driver's code. They are written before `library`, whose value says that they are set.
struct Code {
  std::atomic<std::uintptr_t> start = 0, end = 0;
} driver_code;
std::atomic<link_map*> library = nullptr;

int note_code(dl_phdr_info* object, std::size_t, void* map) {
  if (object->dlpi_addr != static_cast<link_map*>(map)->l_addr) return 0;
  std::uintptr_t end = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type == PT_LOAD) end = std::max<std::uintptr_t>(end, part.p_vaddr + part.p_memsz);
  }
  driver_code.start.store(object->dlpi_addr, std::memory_order_relaxed);
  driver_code.end.store(object->dlpi_addr + end, std::memory_order_relaxed);
  return 1;
}

// Returns null while the driver is not loaded. A library loaded from anywhere is found by its SONAME.
link_map* driver_library() {
  link_map* known = library.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  known = static_cast<link_map*>(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
  if (known == nullptr) {
    dlerror();  // a program asks for its own errors only
    return nullptr;
  }
  dl_iterate_phdr(note_code, known);
  library.store(known, std::memory_order_release);
  return known;
}

}  // namespace

void* loader_dlsym() {
  static void* const function = find_dlsym();
  return function;
}

void* real_dlsym(void* library, const char* symbol) {
  return reinterpret_cast<Dlsym*>(loader_dlsym())(library, symbol);
}

bool in_driver(const void* code) {
  if (driver_library() == nullptr) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  return address >= driver_code.start.load(std::memory_order_relaxed) &&
         address < driver_code.end.load(std::memory_order_relaxed);
}

void* real_function(Entry entry) {
  std::atomic<void*>& known = real_functions[static_cast<std::size_t>(entry)];
  if (void* const function = known.load(std::memory_order_acquire)) return function;
  link_map* const driver = driver_library();
  if (driver == nullptr) return nullptr;
  void* const found = real_dlsym(driver, entry_point(entry).symbol);
  if (found == nullptr) dlerror();
  known.store(found, std::memory_order_release);
  return found;
}

void remember_real(Entry entry, void* function) {
  void* none = nullptr;
  real_functions[static_cast<std::size_t>(entry)].compare_exchange_strong(none, function);
}

CUresult missing_function() {
  return driver_library() == nullptr ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_NOT_FOUND;
}

Outermost::Outermost(const void* caller) : outermost_(!inside && !in_driver(caller)) {
  if (outermost_) inside = true;
}

Outermost::~Outermost() {
  if (outermost_) inside = false;
}

}  // namespace stowage::interpose
