// Modules: shared libraries of this project that a program loads when it first asks for what they do, so that
// it starts where a library that they need is missing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stowage {

// Returns the files to try for a module, best first. If `override_path` is set, it is the only one.
// Otherwise: ../lib/stowage beside the program; if `library` is another file, stowage and ../stowage beside
// it; then `built`.
std::vector<std::filesystem::path> module_candidates(const std::string& file_name, const char* override_path,
                                                     const std::filesystem::path& program,
                                                     const std::filesystem::path& library,
                                                     const std::filesystem::path& built);

std::filesystem::path program_path();
// Returns the file that `code` was linked into: the program, or one of its libraries.
std::filesystem::path library_path(const void* code);

// Returns the first candidate that exists; empty if none does.
std::filesystem::path first_that_exists(const std::vector<std::filesystem::path>& candidates);
std::string joined_paths(const std::vector<std::filesystem::path>& paths);  // "a, b"

// A module is never closed: the objects that it made live in it. Loading never throws: failures are
// in `error`.
struct ModuleEntry {
  bool loaded = false;      // the library is open, perhaps without the entry
  void* address = nullptr;  // address of the entry; null: see `error`
  std::string error;        // the loader's message
};
ModuleEntry load_entry(const std::filesystem::path& path, const char* entry);

}  // namespace stowage
