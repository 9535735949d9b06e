// Calls a kernel of the CPU for the graph's work type.
#pragma once

#include <fmt/format.h>

#include "src/nn/kernel_call.h"

namespace stowage::cpu {

// Runs Adapter<T>::run(call) for work type f32, bf16, f16 or f64; throws InvalidInput for any other.
template <template <class> class Adapter>
void launch_adapter(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  switch (call.work_type()) {
    case DataType::f32:
      return Adapter<float>::run(call);
    case DataType::bf16:
      return Adapter<Bfloat16>::run(call);
    case DataType::f16:
      return Adapter<Float16>::run(call);
    case DataType::f64:
      return Adapter<double>::run(call);
    default:
      call.fail(
          fmt::format("computes in {}, but the CPU's kernels take f32, bf16, f16 and f64; build the graph in "
                      "one of these",
                      to_string(call.work_type())));
  }
}

// Adds the kernels of a Transformer's forward and backward.
void add_transformer_kernels(LaunchTable& table);
// Adds the kernels of the update phase, which also serve host lanes.
void add_update_kernels(LaunchTable& table);

}  // namespace stowage::cpu
