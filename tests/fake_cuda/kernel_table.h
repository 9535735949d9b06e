// The kernels that can be run, by mangled name, and which name the program's host functions stand for.
//
// Used by host threads alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/fake_cuda/block_runner.h"

namespace fake_cuda {

struct Kernel {
  void (*run)(void** args) = nullptr;
  const std::size_t* sizes = nullptr;
  std::size_t count = 0;
};

struct Function {
  std::string name;
  std::size_t dynamic_shared_bytes = std::size_t{48} << 10;  // at most, until asked for more
};

class KernelTable {
 public:
  static KernelTable& get();

  void add_kernel(const char* mangled_name, const Kernel& kernel);
  void add_function(const void* host_function, const char* mangled_name);
  std::optional<Function> function(const void* host_function);
  bool allow_shared_bytes(const void* host_function, std::size_t bytes);

  // Loads the libraries of STOWAGE_FAKE_CUDA_KERNELS first. Says on stderr what is missing.
  std::optional<Kernel> kernel(const std::string& mangled_name);

 private:
  void load_libraries();

  std::mutex mutex_;
  std::map<std::string, Kernel> kernels_;
  std::map<const void*, Function> functions_;
  std::once_flag loaded_;
};

// The work of a launch: runs the kernel on copies of its arguments.
std::function<void()> launch_work(const Kernel& kernel, GridSize blocks, GridSize threads,
                                  std::size_t shared_bytes, void** args);

}  // namespace fake_cuda
