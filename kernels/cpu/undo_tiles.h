// Parallel work over the tiles of updates that can be taken back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "include/stowage/undo_record.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {

// Calls body(begin, count) for each tile of `count` elements, on any thread.
template <class Body>
void for_each_tile(std::int64_t count, const Body& body) {
  constexpr std::int64_t tiles_of_a_chunk = 8;  // as many elements as adamw gives a thread at once
  parallel_for(count, tiles_of_a_chunk * undo_tile, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += undo_tile) body(begin, std::min(undo_tile, end - begin));
  });
}

}  // namespace stowage::cpu
