// The one parallel loop of the project: fixed chunks, so that no result depends on the thread count.
#pragma once

#include <cstdint>
#include <utility>

namespace stowage {

// Threads that parallel loops of the whole process may use; 0: all cores.
void set_parallel_threads(int threads);
int parallel_threads();
// Takes `count` threads away from parallel loops, but leaves at least one: cores for threads that are always
// busy, such as the thread that feeds a card while loops run.
inline void leave_threads(int count) {
  set_parallel_threads(parallel_threads() > count ? parallel_threads() - count : 1);
}

namespace detail {
using ChunkFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);
using ChunkLoop = void (*)(std::int64_t count, std::int64_t chunk, ChunkFunction function, void* context);
// Runs the chunks on this library's threads.
void run_chunks(std::int64_t count, std::int64_t chunk, ChunkFunction function, void* context);
// Runs the chunks by the loop that was set last, at first run_chunks. Thread-safe.
void parallel_chunks(std::int64_t count, std::int64_t chunk, ChunkFunction function, void* context);
void set_chunk_loop(ChunkLoop loop);
}  // namespace detail

// Calls body(begin, end) for [0, chunk), [chunk, 2 chunk), … [.., count), each exactly once, on any
// thread, in any order; returns when all are done. Exceptions of a body are rethrown here. Calls may
// nest and may come from several threads at once. The partition depends on `count` and `chunk` alone.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t chunk, Body&& body) {
  auto call = [](void* context, std::int64_t begin, std::int64_t end) {
    (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end);
  };
  detail::parallel_chunks(count, chunk, call, const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace stowage
