#include "allocator/stream_cache.h"

#include <algorithm>

namespace stowage::caching {

Cache* Stream::find_cache(const Pool& pool) {
  for (const auto& cache : caches)
    if (&cache->pool == &pool) return cache.get();
  return nullptr;
}

Cache& Stream::cache_for(Pool& pool) {
  if (Cache* const known = find_cache(pool)) return *known;
  caches.push_back(std::make_unique<Cache>(*this, pool));
  caches.back()->statistics.stream = lane;
  caches.back()->statistics.pool = pool.id;
  return *caches.back();
}

void Stream::drop_cache(const Pool& pool) {
  std::erase_if(caches, [&](const auto& cache) { return &cache->pool == &pool; });
}

}  // namespace stowage::caching
