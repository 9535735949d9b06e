// Calls a card's kernel for the graph's work type.
#pragma once

#include <fmt/format.h>

#include "src/nn/kernel_call.h"

namespace stowage::cuda {

// Runs Adapter<T>::run(call) for work type f32, bf16 or f16; throws InvalidInput for any other.
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
    default:
      call.fail(
          fmt::format("computes in {}, but the CUDA kernels take f32, bf16 and f16; use the simulated "
                      "device, or build the graph in one of these",
                      to_string(call.work_type())));
  }
}

void add_transformer_kernels(LaunchTable& table);
void add_update_kernels(LaunchTable& table);

}  // namespace stowage::cuda
