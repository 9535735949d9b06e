// Finds and loads a backend in a shared library of its own.
//
// The module exports `extern "C" const BackendModule* stowage_backend_module()`. It is built together
// with the program that loads it (same compiler, same headers): C++ types and exceptions cross the
// boundary. A module of another build is refused.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "src/base/parallel_for.h"
#include "stowage/cuda_device.h"

namespace stowage {

inline constexpr unsigned backend_module_abi = 4;

struct BackendModule {
  // Read first: the members behind them are used only if both equal the program's.
  unsigned abi = 0;
  const char* version = "";

  CudaStatus (*status)() = nullptr;
  std::unique_ptr<Device> (*open)(const CudaOptions& options) = nullptr;
  void (*add_kernels)(LaunchTable& table) = nullptr;
  AttentionUse (*attention_use)() = nullptr;
  // Makes the module's parallel loops run by `loop`, the program's, so that they use the program's threads.
  void (*set_chunk_loop)(detail::ChunkLoop loop) = nullptr;
};

// The reason that no card answers if the driver does not.
inline constexpr const char* no_driver =
    "no CUDA driver answers here, or one too old for this build: install NVIDIA's driver";

// Version and compiler that this program was built with; a module must return the same.
const char* backend_module_version();

struct LoadedModule {
  const BackendModule* module = nullptr;  // null: not there; lives as long as the process
  std::string reason;                     // where the module was found, or why it was not, and what to do
};

// Returns the files to try for the CUDA module, as module_candidates (src/base/module_file.h).
std::vector<std::filesystem::path> backend_module_candidates(const char* override_path,
                                                             const std::filesystem::path& program,
                                                             const std::filesystem::path& library = {});

// Opens the first candidate that exists. Never throws for a module that cannot be loaded: the reason
// says which file, what the loader missed, and what to do.
LoadedModule load_backend_module(const std::vector<std::filesystem::path>& candidates);

// Returns the CUDA module of this program, loaded on first use; its parallel loops are this
// program's. Thread-safe.
const LoadedModule& cuda_module();

}  // namespace stowage
