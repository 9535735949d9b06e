// A backend in a shared library of its own, and how it is found and loaded.
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
  // Read first: nothing behind them is touched when they differ from the program's.
  unsigned abi = 0;
  const char* version = "";

  CudaStatus (*status)() = nullptr;
  std::unique_ptr<Device> (*open)(const CudaOptions& options) = nullptr;
  void (*add_kernels)(LaunchTable& table) = nullptr;
  AttentionUse (*attention_use)() = nullptr;
  // Its parallel loops run by `loop` from then on: the program's, so that they have the program's threads.
  void (*set_chunk_loop)(detail::ChunkLoop loop) = nullptr;
};

// Why no card answers where the driver does not.
inline constexpr const char* no_driver =
    "no CUDA driver answers here, or one too old for this build: install NVIDIA's driver";

// What this program was built as; a module must say the same.
const char* backend_module_version();

struct LoadedModule {
  const BackendModule* module = nullptr;  // null: not there; lives as long as the process
  std::string reason;                     // where it was found, or why not and what to do
};

// The files to try, best first: what `override` names and nothing else; else in ../lib/stowage beside
// the program; where this code is in a library, in stowage and ../stowage beside that; then where it was
// built.
std::vector<std::filesystem::path> backend_module_candidates(const char* override_path,
                                                             const std::filesystem::path& program,
                                                             const std::filesystem::path& library = {});

// Opens the first candidate that exists. Never throws for a module that cannot be loaded: the reason
// says which file, what the loader missed, and what to do.
LoadedModule load_backend_module(const std::vector<std::filesystem::path>& candidates);

// The CUDA module of this program, loaded on first use; its parallel loops are this program's. Thread-safe.
const LoadedModule& cuda_module();

}  // namespace stowage
