// Ranks of one process: a thread for each.
#pragma once

#include <cstddef>
#include <functional>

namespace stowage {

// Calls work(rank) for each rank, on a thread of its own but for the first, and returns when all have. Throws
// what one of them has thrown: of several errors the one that made the others fail. Where a thread cannot be
// started throws std::system_error, and calls `abandon` first: what the others may wait for does not come.
void on_ranks(std::size_t ranks, const std::function<void(std::size_t)>& work,
              const std::function<void(const char* why)>& abandon);

}  // namespace stowage
