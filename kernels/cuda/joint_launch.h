// Several updates by one launch of their kernel.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/optimizer.h"

namespace stowage::cuda {

// Updates as a kernel's parameter. The blocks from first_block[u] on are those of update u.
template <class Update>
struct JointUpdates {
  Update updates[most_updates];
  unsigned first_block[most_updates];
  unsigned count;
};

// Returns the number of the block's update.
template <class Update>
__device__ inline unsigned update_of_block(const JointUpdates<Update>& all) {
  unsigned first = 0, behind = all.count;
  while (behind - first > 1) {
    const unsigned middle = (first + behind) / 2;
    if (all.first_block[middle] <= blockIdx.x)
      first = middle;
    else
      behind = middle;
  }
  return first;
}

// Launches the kernel for make(u) of each u of `updates`, in blocks of `threads` threads, each of which
// updates up to `elements_of_block` elements. Requires at most most_updates of them.
template <class Update, class Of, class Make>
void launch_updates(void (*kernel)(JointUpdates<Update>), int threads, std::int64_t elements_of_block,
                    std::span<const Of> updates, const Make& make, void* stream) {
  JointUpdates<Update> all{};
  std::int64_t blocks = 0;
  for (const Of& of : updates) {
    all.updates[all.count] = make(of);
    all.first_block[all.count++] = static_cast<unsigned>(blocks);
    blocks += blocks_for(of.operands.count, elements_of_block);
  }
  if (blocks > 0) launch(kernel, "adamw", {{blocks}, threads}, stream, all);
}

}  // namespace stowage::cuda
