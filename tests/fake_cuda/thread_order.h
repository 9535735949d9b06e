// In which order the threads of a block run from one barrier to the next.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

namespace fake_cuda {

enum class ThreadOrder { forward, reversed, random };
inline constexpr std::array thread_order_names = {"forward", "reversed", "random"};

// Of the blocks of a launch: one order, or by turns, from another one in each launch.
struct ThreadOrders {
  std::optional<ThreadOrder> always;
  unsigned launch = 0;  // its number, which also seeds what is random

  ThreadOrder of_block(std::size_t block) const {
    return always.value_or(static_cast<ThreadOrder>((launch + block) % thread_order_names.size()));
  }
};

}  // namespace fake_cuda
