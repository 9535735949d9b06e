#include "src/nn/cuda/launch_table.h"

#include "src/nn/cuda/adapter.h"

namespace stowage::cuda {

void add_kernels(LaunchTable& table) {
  add_transformer_kernels(table);
  add_update_kernels(table);
}

}  // namespace stowage::cuda
