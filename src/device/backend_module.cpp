#include "src/device/backend_module.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_name = "libstowage_cuda.so";
constexpr const char* entry_name = "stowage_backend_module";

std::string loader_error() {
  const char* const error = dlerror();
  return error == nullptr ? "the loader gives no reason" : error;
}

// What the loader could not find, if that is why.
std::string advice(const std::string& error) {
  for (const char* const library : {"libcudart", "libcublasLt"})
    if (error.find(library) != std::string::npos)
      return "install CUDA 13's libraries, or name their folder in LD_LIBRARY_PATH";
  return "build and install this version of Stowage anew, with STOWAGE_CUDA=ON";
}

LoadedModule open_module(const fs::path& path) {
  // Never closed: devices and kernels live in it.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string error = loader_error();
    return {nullptr,
            fmt::format("the CUDA backend {} does not load ({}): {}", path.string(), error, advice(error))};
  }
  const auto entry = reinterpret_cast<const BackendModule* (*)()>(dlsym(library, entry_name));
  if (entry == nullptr)
    return {nullptr, fmt::format("{} is no backend of Stowage ({}): name another in STOWAGE_CUDA_BACKEND",
                                 path.string(), loader_error())};
  const BackendModule* const module = entry();
  if (module->abi != backend_module_abi || std::strcmp(module->version, backend_module_version()) != 0)
    return {nullptr,
            fmt::format("the CUDA backend {} is of another build (interface {}, '{}') than this program "
                        "(interface {}, '{}'): build both together",
                        path.string(), module->abi, module->abi == backend_module_abi ? module->version : "",
                        backend_module_abi, backend_module_version())};
  return {module, fmt::format("the CUDA backend is {}", path.string())};
}

fs::path program_path() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

// The program's own path, or that of the library that this code was linked into.
fs::path library_path() {
  Dl_info info{};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&cuda_module), &info) == 0 || info.dli_fname == nullptr) return {};
  return fs::canonical(info.dli_fname, error);
}

std::string not_found(const std::vector<fs::path>& candidates) {
  std::string tried;
  for (const fs::path& path : candidates) tried += (tried.empty() ? "" : ", ") + path.string();
  return fmt::format(
      "there is no CUDA backend (looked for {}): build Stowage with STOWAGE_CUDA=ON, or name the file in "
      "STOWAGE_CUDA_BACKEND",
      tried);
}

const BackendModule& module_or_throw() {
  const LoadedModule& loaded = cuda_module();
  if (loaded.module == nullptr) throw InvalidInput(loaded.reason);
  return *loaded.module;
}

}  // namespace

std::vector<fs::path> backend_module_candidates(const char* override_path, const fs::path& program,
                                                const fs::path& library) {
  if (override_path != nullptr && *override_path != '\0') return {override_path};
  std::vector<fs::path> result;
  if (program.has_parent_path())
    result.push_back((program.parent_path() / "../lib/stowage" / file_name).lexically_normal());
  if (library.has_parent_path() && library != program)
    for (const char* const folder : {"stowage", "../stowage"})
      result.push_back((library.parent_path() / folder / file_name).lexically_normal());
  result.emplace_back(fs::path(STOWAGE_MODULE_DIR) / file_name);
  return result;
}

LoadedModule load_backend_module(const std::vector<fs::path>& candidates) {
  for (const fs::path& path : candidates) {
    std::error_code error;
    if (fs::exists(path, error)) return open_module(path);
  }
  return {nullptr, not_found(candidates)};
}

const LoadedModule& cuda_module() {
  static const LoadedModule loaded = [] {
    LoadedModule found = load_backend_module(
        backend_module_candidates(std::getenv("STOWAGE_CUDA_BACKEND"), program_path(), library_path()));
    if (found.module != nullptr) found.module->set_chunk_loop(detail::parallel_chunks);
    return found;
  }();
  return loaded;
}

CudaStatus cuda_status() {
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

}  // namespace stowage
