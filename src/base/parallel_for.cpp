#include "src/base/parallel_for.h"

#include <atomic>

namespace stowage::detail {
namespace {

std::atomic<ChunkLoop> chunk_loop = run_chunks;

}  // namespace

void parallel_chunks(std::int64_t count, std::int64_t chunk, ChunkFunction function, void* context) {
  chunk_loop.load(std::memory_order_acquire)(count, chunk, function, context);
}

void set_chunk_loop(ChunkLoop loop) { chunk_loop.store(loop, std::memory_order_release); }

}  // namespace stowage::detail
