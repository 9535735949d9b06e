#include "stowage/caching_allocator.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "allocator/caching_allocator_implementation.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// Size of the address range as a multiple of the device's memory. Addresses are plentiful: with this many a
// block finds room in one piece wherever the granules in use lie. The default pool has half of the range,
// private pools the rest.
constexpr Bytes ranges_per_memory = 32;
constexpr Bytes most_memory = 64_GiB * 4;  // limit for a device that reports none

Bytes range_for(Bytes total) {
  return ranges_per_memory * align_up(std::clamp(total, 64_MiB, most_memory), 32_MiB);
}

}  // namespace

CachingAllocator::Implementation::Implementation(Device& device, const CachingAllocatorOptions& options)
    : device_(device),
      history_(options.history_entries),
      memory_(device, range_for(device.memory_info().total), options.limit, history_),
      base_(memory_.base()),
      range_(memory_.bytes()),
      granule_(memory_.granule()),
      table_(range_),
      plans_periods_(options.plan_periods),
      pools_(first_pools()),
      plan_server_({.granule = granule_}),
      plan_region_(plan_space(), memory_, *pools_.front()) {}

CachingAllocator::Implementation::~Implementation() {
  const MutexLock lock(mutex_);
  std::exception_ptr failure;
  synchronise(failure);
}

CachingAllocator::Implementation::Stream& CachingAllocator::Implementation::new_stream(LaneId lane) {
  if (lane >= most_lanes)
    throw InvalidInput(fmt::format(
        "caching allocator: stream {} is not one of {} lanes; pass a lane of its device", lane, most_lanes));
  const MutexLock lock(mutex_);
  if (Stream* const known = streams_[lane].load(std::memory_order_acquire)) return *known;
  owned_streams_.push_back(std::make_unique<Stream>(device_, lane));
  Stream& stream = *owned_streams_.back();
  {
    const MutexLock stream_lock(stream.mutex);
    stream.current = &stream.cache_for(*pools_.front());
  }
  streams_[lane].store(&stream, std::memory_order_release);
  return stream;
}

bool CachingAllocator::Implementation::owns(const void* address) const {
  // The difference wraps around for an address below the range.
  return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base_) < range_;
}

caching::Block& CachingAllocator::Implementation::block_at(const void* address, std::string_view call) {
  const auto offset = static_cast<Bytes>(static_cast<const std::byte*>(address) - base_);
  if (offset < range_ && offset % caching::BlockTable::unit == 0)
    if (Block* const block = table_.at(offset)) return *block;
  throw InvalidInput(fmt::format(
      "{}: {} is not the address of a block of this allocator; pass what allocate returned", call, address));
}

void CachingAllocator::Implementation::hand_out(Cache& cache, Block& block, Bytes asked) {
  block.live = true;
  block.asked = asked;
  StreamStatistics& statistics = cache.statistics;
  statistics.allocated += block.at.length();
  statistics.requested += asked;
  statistics.peak_allocated = std::max(statistics.peak_allocated, statistics.allocated);
  ++statistics.allocations;
  history_.add({caching::EventKind::allocate, reinterpret_cast<std::uintptr_t>(address_of(block)),
                block.at.length(), statistics.stream, statistics.pool});
}

void CachingAllocator::Implementation::take_back(Cache& cache, Block& block, std::string_view call) {
  if (!block.live)
    throw InvalidInput(
        fmt::format("{}: {} was released already; release each block once", call, address_of(block)));
  block.live = false;
  StreamStatistics& statistics = cache.statistics;
  statistics.allocated -= block.at.length();
  statistics.requested -= block.asked;
  ++statistics.releases;
  history_.add({caching::EventKind::release, reinterpret_cast<std::uintptr_t>(address_of(block)),
                block.at.length(), statistics.stream, statistics.pool});
}

void* CachingAllocator::Implementation::allocate(Bytes bytes, LaneId lane) {
  if (bytes == 0) throw InvalidInput("allocate: zero bytes asked; ask for at least one");
  // A request larger than the range finds no place, and fails as any other such request.
  const Bytes rounded = align_up(std::min(bytes, range_ + 1), caching::BlockTable::unit);
  Stream& stream = stream_of(lane);
  return plans_periods_ ? allocate_planned(rounded, bytes, stream) : allocate_cached(rounded, bytes, stream);
}

void* CachingAllocator::Implementation::allocate_cached(Bytes bytes, Bytes asked, Stream& stream) {
  {
    const MutexLock lock(stream.mutex);
    Cache& cache = *stream.current;
    if (Block* const block = cache.bins.take(bytes)) {
      cache.statistics.cached -= block->at.length();
      ++cache.statistics.hits;
      hand_out(cache, *block, asked);
      return address_of(*block);
    }
  }
  return allocate_slowly(bytes, asked, stream);
}

void CachingAllocator::Implementation::release(void* address) {
  Block& block = block_at(address, "release");
  if (!plans_periods_ || !release_planned(block, nullptr)) release_cached(block);
}

void CachingAllocator::Implementation::release_cached(Block& block) {
  Cache& cache = *block.cache;
  {
    const MutexLock lock(cache.stream.mutex);
    if (!block.live || block.users.empty()) {
      take_back(cache, block, "release");
      block.count = cache.stream.marks.next_release().count;
      cache.statistics.cached += block.at.length();
      cache.bins.put(block);
      mark_if_due(cache.stream, block.at.length());
      return;
    }
  }
  release_used_elsewhere(block);
}

void CachingAllocator::Implementation::mark_if_due(Stream& stream, Bytes bytes) {
  const std::uint64_t demands = demands_.load(std::memory_order_relaxed);
  if (stream.demands == demands) return;
  stream.unmarked_bytes += bytes;
  if (stream.unmarked_bytes < Stream::bytes_per_mark || stream.is_captured()) return;
  if (stream.marks.is_full()) stream.marks.poll();
  stream.marks.mark();
  stream.unmarked_bytes = 0;
  stream.demands = demands;
}

// Returns the block to the heap with a mark on each lane, since a cache knows one lane alone.
void CachingAllocator::Implementation::release_used_elsewhere(Block& block) {
  const MutexLock lock(mutex_);
  give(block, take_back_everywhere(block));
}

caching::Tags CachingAllocator::Implementation::take_back_everywhere(Block& block) {
  Cache& cache = *block.cache;
  caching::Tags tags;
  std::vector<Stream*> users;
  {
    const MutexLock stream_lock(cache.stream.mutex);
    take_back(cache, block, "release");
    tags.push_back(cache.stream.marks.next_release());
    users = std::move(block.users);
    if (!users.empty() && !cache.stream.is_captured()) cache.stream.marks.mark();
  }
  for (Stream* const user : users) {
    const MutexLock user_lock(user->mutex);
    if (user->retired) continue;
    tags.push_back(user->marks.next_release());
    if (!user->is_captured()) user->marks.mark();
  }
  return tags;
}

void CachingAllocator::Implementation::give(Block& block, caching::Tags tags) {
  if (block.is_planned) {
    plan_region_.give(block.at, std::move(tags));
  } else {
    block.cache->pool.heap.give(block.at, std::move(tags));
  }
  table_.at(block.at.begin) = nullptr;
  blocks_.recycle(block);
}

void CachingAllocator::Implementation::release(void* address, LaneId lane) {
  Block& block = block_at(address, "release");
  Stream& target = stream_of(lane);
  if (&target == &block.cache->stream) return release(address);
  if (!plans_periods_ || !release_planned(block, &target)) release_cached(block, target);
}

void CachingAllocator::Implementation::release_cached(Block& block, Stream& target) {
  const MutexLock lock(mutex_);
  Pool& pool = block.cache->pool;
  {
    const MutexLock stream_lock(block.cache->stream.mutex);
    take_back(*block.cache, block, "release");
    block.users.clear();
  }
  const MutexLock target_lock(target.mutex);
  block.cache = &target.cache_for(pool);
  block.count = target.marks.next_release().count;
  block.cache->statistics.cached += block.at.length();
  block.cache->bins.put(block);
  mark_if_due(target, block.at.length());
}

Bytes CachingAllocator::Implementation::block_bytes(const void* address) {
  Block& block = block_at(address, "block_bytes");
  const MutexLock lock(block.cache->stream.mutex);
  if (!block.live)
    throw InvalidInput(fmt::format("block_bytes: {} was released already; ask before its release", address));
  return block.at.length();
}

void CachingAllocator::Implementation::record_stream(const void* address, LaneId lane) {
  Block& block = block_at(address, "record_stream");
  Stream& user = stream_of(lane);
  if (&user == &block.cache->stream) return;
  const MutexLock lock(block.cache->stream.mutex);
  if (!block.live)
    throw InvalidInput(
        fmt::format("record_stream: {} was released already; record before its release", address));
  if (std::find(block.users.begin(), block.users.end(), &user) == block.users.end())
    block.users.push_back(&user);
}

CachingAllocator::CachingAllocator(Device& device, const CachingAllocatorOptions& options)
    : implementation_(std::make_unique<Implementation>(device, options)) {}
CachingAllocator::~CachingAllocator() = default;

DeviceBuffer CachingAllocator::allocate(Bytes bytes, LaneId stream) { return {*this, bytes, stream}; }
void* CachingAllocator::allocate_raw(Bytes bytes, LaneId stream) {
  return implementation_->allocate(bytes, stream);
}
void CachingAllocator::release_raw(void* address) { implementation_->release(address); }
void CachingAllocator::release_raw(void* address, LaneId stream) {
  implementation_->release(address, stream);
}
Bytes CachingAllocator::block_bytes(const void* address) const {
  return implementation_->block_bytes(address);
}
bool CachingAllocator::owns(const void* address) const { return implementation_->owns(address); }
void CachingAllocator::record_stream(const void* address, LaneId stream) {
  implementation_->record_stream(address, stream);
}
void CachingAllocator::begin_iteration() { implementation_->begin_iteration(); }
Bytes CachingAllocator::trim() { return implementation_->trim(); }
void CachingAllocator::retire_stream(LaneId stream) { implementation_->retire_stream(stream); }
void CachingAllocator::set_limit(Bytes limit) { implementation_->set_limit(limit); }
PoolId CachingAllocator::create_pool() { return implementation_->create_pool(); }
void CachingAllocator::destroy_pool(PoolId pool) { implementation_->destroy_pool(pool); }
ObserverId CachingAllocator::add_observer(OutOfMemoryObserver observer) {
  return implementation_->observers().add(std::move(observer));
}
void CachingAllocator::remove_observer(ObserverId observer) { implementation_->observers().remove(observer); }
AllocatorStatistics CachingAllocator::statistics() const { return implementation_->statistics(); }
void CachingAllocator::reset_peaks() { implementation_->reset_peaks(); }
std::string CachingAllocator::history_json() const { return implementation_->history().json(); }
std::string CachingAllocator::history_text() const { return implementation_->history().text(); }
std::string CachingAllocator::account() const { return implementation_->account(); }
AllocatorSnapshot CachingAllocator::snapshot() const { return implementation_->snapshot(); }

PoolScope::PoolScope(CachingAllocator& allocator, LaneId stream, PoolId pool)
    : allocator_(allocator), stream_(stream), before_(allocator.implementation_->route(stream, pool)) {}
PoolScope::~PoolScope() { allocator_.implementation_->end_route(stream_, before_); }

}  // namespace stowage
