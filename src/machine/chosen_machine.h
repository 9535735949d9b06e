// The machine that a program plans for: the one it runs on, as `stowage calibrate` measured it last, and
// descriptions of any machine.
#pragma once

#include <string>
#include <string_view>

#include "stowage/machine_file.h"

namespace stowage {

constexpr std::string_view machine_here = "here";  // the name that plans take

// Returns $XDG_CACHE_HOME/stowage/here.json, or $HOME/.cache/stowage/here.json. Throws InvalidInput if
// neither variable is an absolute path.
std::string path_of_machine_here();

// Throws InvalidInput that shows the command to run if nothing was measured, or if the file cannot be read.
MachineFile read_machine_here();

// The machine in a line for people:
// "NVIDIA H200 on node, measured 2026-11-21T13:50:00Z", "8 x NVIDIA H200 on …"
std::string describe_machine(const MachineFile& file);

// Returns the usual type of models planned for the machine: bf16 on a CUDA card that has a rate for it,
// else f32.
DataType usual_type(const MachineFile& file);

}  // namespace stowage
