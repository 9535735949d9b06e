#include "tests/fake_cuda/kernel_table.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "tests/fake_cuda/shim_runtime.h"
#include "tests/fake_cuda/state.h"

extern "C" void stowage_shim_register_kernel(const char* mangled_name, void (*run)(void** args),
                                             const std::size_t* sizes, std::size_t count) {
  fake_cuda::KernelTable::get().add_kernel(mangled_name, {run, sizes, count});
}

namespace fake_cuda {

KernelTable& KernelTable::get() {
  static KernelTable& table = *new KernelTable;
  return table;
}

void KernelTable::add_kernel(const char* mangled_name, const Kernel& kernel) {
  const std::lock_guard lock(mutex_);
  kernels_[mangled_name] = kernel;
}

void KernelTable::add_function(const void* host_function, const char* mangled_name) {
  const std::lock_guard lock(mutex_);
  functions_[host_function].name = mangled_name;
}

std::optional<Function> KernelTable::function(const void* host_function) {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(host_function);
  return found == functions_.end() ? std::nullopt : std::optional(found->second);
}

bool KernelTable::allow_shared_bytes(const void* host_function, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(host_function);
  if (found == functions_.end()) return false;
  found->second.dynamic_shared_bytes = bytes;
  return true;
}

// Once; what calls it while another thread loads waits, or it would find no kernel.
void KernelTable::load_libraries() {
  std::call_once(loaded_, [] {
    const char* paths = std::getenv("STOWAGE_FAKE_CUDA_KERNELS");
    std::istringstream stream(paths == nullptr ? "" : paths);
    for (std::string path; std::getline(stream, path, ':');) {
      // Lazily: host functions of the same files call what is not there, and are never called.
      if (dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr) {
        std::fprintf(stderr, "fake CUDA: STOWAGE_FAKE_CUDA_KERNELS: %s\n", dlerror());
      }
    }
  });
}

std::optional<Kernel> KernelTable::kernel(const std::string& mangled_name) {
  load_libraries();
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(mangled_name);
  if (found != kernels_.end()) return found->second;
  std::fprintf(stderr,
               "fake CUDA: no kernel %s; name it by STOWAGE_CUDA_KERNEL in a file given to "
               "stowage_emulate_kernels, and its library in STOWAGE_FAKE_CUDA_KERNELS\n",
               mangled_name.c_str());
  return std::nullopt;
}

std::function<void()> launch_work(const Kernel& kernel, GridSize blocks, GridSize threads,
                                  std::size_t shared_bytes, void** args) {
  using Unit = std::max_align_t;
  std::vector<std::size_t> offsets;
  std::size_t units = 0;
  for (std::size_t i = 0; i < kernel.count; ++i) {
    offsets.push_back(units);
    units += (kernel.sizes[i] + sizeof(Unit) - 1) / sizeof(Unit);
  }
  std::vector<Unit> values(units);
  for (std::size_t i = 0; i < kernel.count; ++i) {
    std::memcpy(values.data() + offsets[i], args[i], kernel.sizes[i]);
  }
  return [run = kernel.run, offsets = std::move(offsets), values = std::move(values), blocks, threads,
          shared_bytes, orders = State::get().next_orders()]() mutable {
    if (!State::get().kernel_may_start()) return;
    std::vector<void*> pointers;
    for (const std::size_t offset : offsets) pointers.push_back(values.data() + offset);
    pointers.push_back(nullptr);
    BlockRunner::of_this_thread().run({run, pointers.data(), blocks, threads, shared_bytes, orders});
  };
}

}  // namespace fake_cuda
