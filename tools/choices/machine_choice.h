// Finds the machine that --machine means: a file, or the name of one that comes with Stowage.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "stowage/machine_file.h"

namespace stowage {

// Returns the folder share/stowage/machines nearest above `program`, which an installed tree and a build tree
// both have; empty: there is none.
std::filesystem::path machines_folder(const std::filesystem::path& program);
// Returns that folder for the running program.
std::filesystem::path machines_folder();

// Sorted. Throws InvalidInput if no more files can be opened.
std::vector<std::string> machine_names(const std::filesystem::path& folder);

// `choice` is a file where it contains '/' or ends in ".json", "here" (src/machine/chosen_machine.h), else a
// name in `folder`. Throws InvalidInput that names the choice and, if it is a name, lists
// the names in `folder`.
MachineFile read_machine(const std::string& choice, const std::filesystem::path& folder);

// Returns a line for each machine: name, device, memory, how its numbers came about. The last line is "here",
// if this machine was measured.
std::string list_machines(const std::filesystem::path& folder);

}  // namespace stowage
