// The CUDA side of the launch table: every kernel of include/stowage/launch_table.h for work types f32, bf16
// and f16. Kernels enqueue on LaunchArguments::stream and return; f64 throws InvalidInput.
#pragma once

#include "stowage/launch_table.h"

namespace stowage::cuda {

void add_kernels(LaunchTable& table);

}  // namespace stowage::cuda
