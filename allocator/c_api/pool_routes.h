// PoolRoutes: the private pool of one caching allocator that a stream's requests go to. As PyTorch's hooks
// do, callers begin, end and release pools by keys of their own; a filter decides for each request whether
// the pool gets it.
//
// Thread-safe. The allocator must outlive the routes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/caching_allocator.h"

namespace stowage::c_api {

using PoolKey = std::pair<std::uint64_t, std::uint64_t>;
using StreamFilter = std::function<bool(void* stream)>;

class PoolRoutes {
 public:
  explicit PoolRoutes(CachingAllocator& allocator) : allocator_(allocator) {}
  PoolRoutes(const PoolRoutes&) = delete;
  PoolRoutes& operator=(const PoolRoutes&) = delete;

  // Throws InvalidInput if no pool can be made: requests that `wants` names then fail until `end`.
  void begin(PoolKey key, StreamFilter wants);
  void end(PoolKey key);      // ends the oldest `begin` of the key; InvalidInput if there is none
  void release(PoolKey key);  // InvalidInput if the pool is unknown or has not ended
  // Destroys released pools whose last block was freed.
  void sweep();

  // Runs `use()`, a request or a release on the stream's lane, with the stream routed as it should be.
  template <class Use>
  auto with_route(void* stream, LaneId lane, Use&& use) {
    if (begun_.load(std::memory_order_acquire) == 0) return use();
    const MutexLock lock(mutex_);
    route(stream, lane);
    return use();
  }
  // Throws InvalidInput where the stream's requests are to go to a pool that could not be made.
  void expect_pool(void* stream);

 private:
  struct Route {
    PoolKey key;
    std::optional<PoolId> pool;  // nullopt: the pool could not be made
    StreamFilter wants;
  };
  struct Scope {
    PoolKey key;
    std::unique_ptr<PoolScope> scope;
  };
  const Route* route_of(void* stream) const STOWAGE_REQUIRES(mutex_);
  void route(void* stream, LaneId lane) STOWAGE_REQUIRES(mutex_);
  void sweep_locked() STOWAGE_REQUIRES(mutex_);

  CachingAllocator& allocator_;
  std::atomic<std::size_t> begun_{0};
  Mutex mutex_;
  std::map<PoolKey, PoolId> pools_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<PoolId> released_ STOWAGE_GUARDED_BY(mutex_);  // pools with live blocks
  std::vector<Route> routes_ STOWAGE_GUARDED_BY(mutex_);     // the oldest route comes first
  std::map<LaneId, Scope> scopes_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::c_api
