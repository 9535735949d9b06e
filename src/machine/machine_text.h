// A machine file in a line for people, and the type in which models are planned on it.
#pragma once

#include <string>

#include "stowage/machine_file.h"

namespace stowage {

// "NVIDIA H200 on node, measured 2026-11-21T13:50:00Z", "8 x NVIDIA H200 on …"
std::string describe_machine(const MachineFile& file);

// Of models planned for it: bf16 on a CUDA card that has a rate for it, else f32.
DataType usual_type(const MachineFile& file);

}  // namespace stowage
