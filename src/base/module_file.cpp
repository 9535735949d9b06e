#include "src/base/module_file.h"

#include <dlfcn.h>

namespace stowage {
namespace {

namespace fs = std::filesystem;

std::string loader_error() {
  const char* const error = dlerror();
  return error == nullptr ? "the loader gives no reason" : error;
}

}  // namespace

std::vector<fs::path> module_candidates(const std::string& file_name, const char* override_path,
                                        const fs::path& program, const fs::path& library,
                                        const fs::path& built) {
  if (override_path != nullptr && *override_path != '\0') return {override_path};
  std::vector<fs::path> result;
  if (program.has_parent_path())
    result.push_back((program.parent_path() / "../lib/stowage" / file_name).lexically_normal());
  if (library.has_parent_path() && library != program)
    for (const char* const folder : {"stowage", "../stowage"})
      result.push_back((library.parent_path() / folder / file_name).lexically_normal());
  result.emplace_back(built / file_name);
  return result;
}

fs::path program_path() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

fs::path library_path(const void* code) {
  Dl_info info{};
  std::error_code error;
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return {};
  return fs::canonical(info.dli_fname, error);
}

fs::path first_that_exists(const std::vector<fs::path>& candidates) {
  for (const fs::path& path : candidates) {
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  return {};
}

std::string joined_paths(const std::vector<fs::path>& paths) {
  std::string text;
  for (const fs::path& path : paths) text += (text.empty() ? "" : ", ") + path.string();
  return text;
}

ModuleEntry load_entry(const fs::path& path, const char* entry) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {false, nullptr, loader_error()};
  void* const address = dlsym(library, entry);
  return {true, address, address == nullptr ? loader_error() : std::string{}};
}

}  // namespace stowage
