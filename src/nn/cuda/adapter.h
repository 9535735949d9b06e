// Calls a card's kernel for the graph's work type.
#pragma once

#include <fmt/format.h>

#include "src/nn/kernel_call.h"

namespace stowage::cuda {

// Returns use(T{}) for the work type of the call, f32, bf16 or f16; throws InvalidInput for any other.
template <class Use>
void with_work_type(const KernelCall& call, const Use& use) {
  switch (call.work_type()) {
    case DataType::f32:
      return use(float{});
    case DataType::bf16:
      return use(Bfloat16{});
    case DataType::f16:
      return use(Float16{});
    default:
      call.fail(
          fmt::format("computes in {}, but the CUDA kernels take f32, bf16 and f16; use the simulated "
                      "device, or build the graph in one of these",
                      to_string(call.work_type())));
  }
}

// Runs Adapter<T>::run(call) for the work type. Throws as above.
template <template <class> class Adapter>
void launch_adapter(const LaunchArguments& arguments) {
  const KernelCall call(arguments);
  with_work_type(call, [&](auto zero) { Adapter<decltype(zero)>::run(call); });
}

void add_transformer_kernels(LaunchTable& table);
void add_update_kernels(LaunchTable& table);

}  // namespace stowage::cuda
