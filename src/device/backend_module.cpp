#include "src/device/backend_module.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "src/base/module_file.h"
#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_name = "libstowage_cuda.so";
constexpr const char* entry_name = "stowage_backend_module";

// Returns what to do: name the library that the loader could not find, if that is the reason.
std::string advice(const std::string& error) {
  for (const char* const library : {"libcudart", "libcublasLt"})
    if (error.find(library) != std::string::npos)
      return "install CUDA 13's libraries, or name their folder in LD_LIBRARY_PATH";
  return "build and install this version of Stowage anew, with STOWAGE_CUDA=ON";
}

LoadedModule open_module(const fs::path& path) {
  const ModuleEntry found = load_entry(path, entry_name);
  if (!found.loaded)
    return {nullptr, fmt::format("the CUDA backend {} does not load ({}): {}", path.string(), found.error,
                                 advice(found.error))};
  if (found.address == nullptr)
    return {nullptr, fmt::format("{} is no backend of Stowage ({}): name another in STOWAGE_CUDA_BACKEND",
                                 path.string(), found.error)};
  const BackendModule* const module = reinterpret_cast<const BackendModule* (*)()>(found.address)();
  if (module->abi != backend_module_abi || std::strcmp(module->version, backend_module_version()) != 0)
    return {nullptr,
            fmt::format("the CUDA backend {} is of another build (interface {}, '{}') than this program "
                        "(interface {}, '{}'): build both together",
                        path.string(), module->abi, module->abi == backend_module_abi ? module->version : "",
                        backend_module_abi, backend_module_version())};
  return {module, fmt::format("the CUDA backend is {}", path.string())};
}

std::string not_found(const std::vector<fs::path>& candidates) {
  return fmt::format(
      "there is no CUDA backend (looked for {}): build Stowage with STOWAGE_CUDA=ON, or name the file in "
      "STOWAGE_CUDA_BACKEND",
      joined_paths(candidates));
}

std::vector<fs::path> candidates_here() {
  return backend_module_candidates(std::getenv("STOWAGE_CUDA_BACKEND"), program_path(),
                                   library_path(reinterpret_cast<const void*>(&cuda_module)));
}

// Whether the loader finds a driver, under the name that the CUDA runtime looks for.
bool driver_is_here() {
  static const bool found = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;  // never closed
  return found;
}

const BackendModule& module_or_throw() {
  const LoadedModule& loaded = cuda_module();
  if (loaded.module == nullptr) throw InvalidInput(loaded.reason);
  return *loaded.module;
}

}  // namespace

std::vector<fs::path> backend_module_candidates(const char* override_path, const fs::path& program,
                                                const fs::path& library) {
  return module_candidates(file_name, override_path, program, library, STOWAGE_MODULE_DIR);
}

LoadedModule load_backend_module(const std::vector<fs::path>& candidates) {
  const fs::path path = first_that_exists(candidates);
  if (!path.empty()) return open_module(path);
  return {nullptr, not_found(candidates)};
}

const LoadedModule& cuda_module() {
  static const LoadedModule loaded = [] {
    LoadedModule found = load_backend_module(candidates_here());
    if (found.module != nullptr) found.module->set_chunk_loop(detail::parallel_chunks);
    return found;
  }();
  return loaded;
}

// Does not load the module if there is no driver: cuBLASLt alone would take 200 MiB, for nothing.
CudaStatus cuda_status() {
  if (!first_that_exists(candidates_here()).empty() && !driver_is_here()) return {false, no_driver};
  const LoadedModule& loaded = cuda_module();
  if (loaded.module == nullptr) return {false, loaded.reason};
  return loaded.module->status();
}

std::unique_ptr<Device> open_cuda_device(const CudaOptions& options) {
  return module_or_throw().open(options);
}

AttentionUse attention_use() {
  const LoadedModule& loaded = cuda_module();
  return loaded.module == nullptr ? AttentionUse{} : loaded.module->attention_use();
}

const char* backend_module_version() { return STOWAGE_VERSION " " __VERSION__; }

}  // namespace stowage
