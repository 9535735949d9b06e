#include "allocator/c_api/pool_routes.h"

#include <fmt/core.h>

#include <algorithm>

#include "stowage/error.h"

namespace stowage::c_api {
namespace {

std::string name_of(const PoolKey& key) { return fmt::format("({}, {})", key.first, key.second); }

}  // namespace

void PoolRoutes::begin(PoolKey key, StreamFilter wants) {
  const MutexLock lock(mutex_);
  sweep_locked();
  routes_.push_back({key, std::nullopt, std::move(wants)});
  begun_.store(routes_.size(), std::memory_order_release);
  auto known = pools_.find(key);
  if (known == pools_.end()) known = pools_.emplace(key, allocator_.create_pool()).first;
  routes_.back().pool = known->second;
}

void PoolRoutes::end(PoolKey key) {
  const MutexLock lock(mutex_);
  const auto ended =
      std::find_if(routes_.begin(), routes_.end(), [&](const Route& one) { return one.key == key; });
  if (ended == routes_.end())
    throw InvalidInput(fmt::format("pool {}: it was not begun; end each begin once", name_of(key)));
  routes_.erase(ended);
  // A scope that another route to the same pool still needs is made anew.
  std::erase_if(scopes_, [&](const auto& one) { return one.second.key == key; });
  begun_.store(routes_.size(), std::memory_order_release);
}

void PoolRoutes::release(PoolKey key) {
  const MutexLock lock(mutex_);
  const auto uses = [&](const Route& route) { return route.key == key; };
  const auto known = pools_.find(key);
  if (known == pools_.end() || std::any_of(routes_.begin(), routes_.end(), uses))
    throw InvalidInput(fmt::format("pool {}: it is {}; begin, end and then release a pool once", name_of(key),
                                   known == pools_.end() ? "not there" : "still begun"));
  released_.push_back(known->second);
  pools_.erase(known);
  sweep_locked();
}

void PoolRoutes::sweep() {
  const MutexLock lock(mutex_);
  sweep_locked();
}

void PoolRoutes::sweep_locked() {
  std::erase_if(released_, [this](PoolId pool) {
    try {
      allocator_.destroy_pool(pool);
      return true;
    } catch (const Error&) {  // the pool has live blocks, or a failed call left some of it mapped
      return false;
    }
  });
}

const PoolRoutes::Route* PoolRoutes::route_of(void* stream) const {
  const auto found =
      std::find_if(routes_.begin(), routes_.end(), [&](const Route& route) { return route.wants(stream); });
  return found == routes_.end() ? nullptr : &*found;
}

void PoolRoutes::route(void* stream, LaneId lane) {
  const Route* const wanted = route_of(stream);
  const auto now = scopes_.find(lane);
  if (wanted != nullptr && now != scopes_.end() && now->second.key == wanted->key) return;
  if (now != scopes_.end()) scopes_.erase(now);
  if (wanted != nullptr && wanted->pool)
    scopes_[lane] = {wanted->key, std::make_unique<PoolScope>(allocator_, lane, *wanted->pool)};
}

void PoolRoutes::expect_pool(void* stream) {
  if (begun_.load(std::memory_order_acquire) == 0) return;
  const MutexLock lock(mutex_);
  const Route* const wanted = route_of(stream);
  if (wanted != nullptr && !wanted->pool)
    throw InvalidInput(fmt::format("pool {}: it could not be made when it was begun; release others first",
                                   name_of(wanted->key)));
}

}  // namespace stowage::c_api
