// Modules: shared libraries of this project that a program loads when it first asks for what they do, so that
// it starts where a library that they need is missing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stowage {

// The files to try for a module, best first: what `override_path` names and nothing else; else in
// ../lib/stowage beside the program; where `library` is another file, in stowage and ../stowage beside that;
// then in `built`.
std::vector<std::filesystem::path> module_candidates(const std::string& file_name, const char* override_path,
                                                     const std::filesystem::path& program,
                                                     const std::filesystem::path& library,
                                                     const std::filesystem::path& built);

std::filesystem::path program_path();
// The file that this code was linked into: the program, or a library of it.
std::filesystem::path library_path(const void* code);

// The first that exists; empty if none does.
std::filesystem::path first_that_exists(const std::vector<std::filesystem::path>& candidates);
std::string joined_paths(const std::vector<std::filesystem::path>& paths);  // "a, b"

// A module is never closed: what it made lives in it. One that cannot be loaded is no exception.
struct ModuleEntry {
  bool loaded = false;      // the library is there, perhaps without the entry
  void* address = nullptr;  // of the entry; null: see `error`
  std::string error;        // what the loader says
};
ModuleEntry load_entry(const std::filesystem::path& path, const char* entry);

}  // namespace stowage
