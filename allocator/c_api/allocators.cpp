#include "allocator/c_api/allocators.h"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "src/base/output_file.h"
#include "src/base/printable.h"
#include "stowage/error.h"

namespace stowage::c_api {
namespace {

thread_local std::string latest_error;

void keep_error(const char* text) noexcept {
  try {
    latest_error = text;
  } catch (const std::bad_alloc&) {
    latest_error.clear();
  }
}

// Number of forks between the first process and this one; only children count.
std::atomic<std::uint64_t> forks{0};
// Calls under way that began before a device was in use: a thread in one may hold a lock.
std::atomic<int> early_calls{0};
// True in a process that was forked while a thread of its parent was in such a call.
std::atomic<bool> orphaned{false};

// Registered when this library is loaded: a fork could meet a later registration half-way.
[[maybe_unused]] const int watches_forks = pthread_atfork(nullptr, nullptr, [] {
  forks.fetch_add(1, std::memory_order_relaxed);
  if (early_calls.load(std::memory_order_relaxed) > 0) orphaned.store(true, std::memory_order_relaxed);
});

class EarlyCall {
 public:
  explicit EarlyCall(bool early) : early_(early) {
    if (early_) early_calls.fetch_add(1, std::memory_order_seq_cst);
  }
  ~EarlyCall() {
    if (early_) early_calls.fetch_sub(1, std::memory_order_seq_cst);
  }
  EarlyCall(const EarlyCall&) = delete;
  EarlyCall& operator=(const EarlyCall&) = delete;

 private:
  const bool early_;
};

class AfterFork : public Error {
 public:
  using Error::Error;
};

std::size_t parse_count(std::string_view text) {
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size())
    throw InvalidInput(fmt::format("STOWAGE_HISTORY is '{}'; give a number of events, or unset it", text));
  return count;
}

bool parse_switch(std::string_view text) {
  if (text != "0" && text != "1")
    throw InvalidInput(
        fmt::format("STOWAGE_PLAN_PERIODS is '{}'; give 1 to plan periods or 0 not to, or unset it", text));
  return text == "1";
}

bool is_set(const char* text) { return text != nullptr && *text != '\0'; }

PoolKey key_of(stowage_pool pool) { return {pool.first, pool.second}; }

void add(stowage_statistics& sum, const AllocatorStatistics& all) {
  sum.limit = all.limit;
  sum.reserved = all.reserved;
  sum.peak_reserved = all.peak_reserved;
  sum.out_of_memory = all.out_of_memory;
  sum.private_pools = all.pools.size() - 1;
  for (const PoolStatistics& pool : all.pools) {
    sum.allocated += pool.allocated;
    sum.requested += pool.requested;
    sum.cached += pool.cached;
    sum.peak_allocated += pool.peak_allocated;
    sum.allocations += pool.allocations;
    sum.hits += pool.hits;
    sum.waits += pool.waits;
    sum.retries += pool.retries;
  }
  std::vector<LaneId> streams;
  for (const StreamStatistics& stream : all.streams) {
    sum.releases += stream.releases;
    streams.push_back(stream.stream);
  }
  std::sort(streams.begin(), streams.end());
  sum.streams = static_cast<std::uint64_t>(std::unique(streams.begin(), streams.end()) - streams.begin());
  sum.plans = all.planned.plans;
  sum.plan_hits = all.planned.hits;
  sum.plan_unplanned = all.planned.unplanned;
  sum.plan_misses = all.planned.misses;
  sum.plan_reserved = all.planned.reserved;
}

}  // namespace

const char* Allocators::last_error() noexcept { return latest_error.c_str(); }
void Allocators::clear_error() noexcept { latest_error.clear(); }
void Allocators::print_error() noexcept {
  try {
    std::fprintf(stderr, "stowage: %s\n", printable_lines(latest_error).c_str());
  } catch (const std::bad_alloc&) {
    std::fputs("stowage: the host is out of memory\n", stderr);
  }
}

Allocators::Allocators(Open open, const Environment& environment) : open_(std::move(open)) {
  const MutexLock lock(mutex_);
  try {
    if (is_set(environment.history)) history_ = parse_count(environment.history);
    if (is_set(environment.plan_periods)) plans_periods_ = parse_switch(environment.plan_periods);
    if (is_set(environment.limit)) for_all_.limit = parse_bytes(environment.limit);
  } catch (const InvalidInput& error) {
    environment_error_ =
        fmt::format("STOWAGE_LIMIT, STOWAGE_HISTORY or STOWAGE_PLAN_PERIODS: {}", error.what());
  }
}

Allocators::~Allocators() {
  for (auto& device : devices_) delete device.load(std::memory_order_acquire);
}

template <class Call>
int Allocators::guarded(Call&& call) noexcept {
  const EarlyCall early(born_.load(std::memory_order_acquire) == 0);
  try {
    expect_ready();
    call();
    return STOWAGE_OK;
  } catch (const AfterFork& error) {
    keep_error(error.what());
    return STOWAGE_AFTER_FORK;
  } catch (const InvalidInput& error) {
    keep_error(error.what());
    return STOWAGE_INVALID_INPUT;
  } catch (const OutOfMemory& error) {
    keep_error(error.what());
    return STOWAGE_OUT_OF_MEMORY;
  } catch (const DeviceError& error) {
    keep_error(error.what());
    return STOWAGE_DEVICE_ERROR;
  } catch (const std::bad_alloc&) {
    keep_error("the host is out of memory");
    return STOWAGE_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep_error(error.what());
    return STOWAGE_FAILED;
  } catch (...) {  // thrown by a filter
    keep_error("something was thrown that is no std::exception");
    return STOWAGE_FAILED;
  }
}

bool Allocators::is_lost() const {
  const std::uint64_t born = born_.load(std::memory_order_acquire);
  if (orphaned.load(std::memory_order_relaxed)) return true;
  return born != 0 && born != forks.load(std::memory_order_relaxed) + 1;
}

// Checks for a fork before taking any lock, since a thread of the parent may have held it.
void Allocators::expect_ready() const {
  if (is_lost())
    throw AfterFork(
        "this process was forked from one that used a device, or began to: CUDA does not work here. Start it "
        "by spawn instead");
  if (!environment_error_.empty()) throw InvalidInput(environment_error_);
}

DeviceAllocator* Allocators::find(int ordinal) const {
  if (ordinal < 0 || ordinal >= most_devices)
    throw InvalidInput(fmt::format("there is no device {}; devices are numbered from 0", ordinal));
  return devices_[static_cast<std::size_t>(ordinal)].load(std::memory_order_acquire);
}

std::vector<std::pair<int, DeviceAllocator*>> Allocators::all() const {
  std::vector<std::pair<int, DeviceAllocator*>> found;
  for (int ordinal = 0; ordinal < most_devices; ++ordinal)
    if (DeviceAllocator* const device = find(ordinal)) found.emplace_back(ordinal, device);
  return found;
}

DeviceAllocator& Allocators::at(int ordinal) {
  if (DeviceAllocator* const known = find(ordinal)) return *known;
  const MutexLock lock(mutex_);
  if (DeviceAllocator* const known = find(ordinal)) return *known;
  DeviceAllocator* const made = open(ordinal).release();
  devices_[static_cast<std::size_t>(ordinal)].store(made, std::memory_order_release);
  return *made;
}

std::unique_ptr<DeviceAllocator> Allocators::open(int ordinal) {
  std::uint64_t none = 0;
  born_.compare_exchange_strong(none, forks.load(std::memory_order_relaxed) + 1);
  auto device = open_(ordinal);
  const Bytes limit = limit_of(ordinal, device->memory_info().total);
  return std::make_unique<DeviceAllocator>(std::move(device),
                                           CachingAllocatorOptions{limit, history_, plans_periods_});
}

Bytes Allocators::limit_of(int ordinal, Bytes total) const {
  const Settings& own = settings_[static_cast<std::size_t>(ordinal)];
  if (own.limit) return *own.limit;
  if (own.fraction) return static_cast<Bytes>(*own.fraction * static_cast<double>(total));
  return for_all_.limit.value_or(unlimited);
}

void* Allocators::allocate(ssize_t bytes, int device, void* stream) noexcept {
  void* address = nullptr;
  const int status = guarded([&] {
    if (bytes < 0) throw InvalidInput(fmt::format("malloc: {} bytes asked; ask for 0 or more", bytes));
    if (bytes > 0) address = at(device).allocate(static_cast<Bytes>(bytes), stream);
  });
  if (status != STOWAGE_OK) print_error();
  return address;
}

void Allocators::release(void* address, int device, void* stream) noexcept {
  if (address == nullptr || is_lost()) return;
  const int status = guarded([&] {
    DeviceAllocator* const owner = find(device);
    if (owner == nullptr || !owner->owns(address))
      throw InvalidInput(
          fmt::format("free: {} is no memory of device {} that malloc gave; free what it gave, on its device",
                      address, device));
    owner->release(address, stream);
  });
  if (status != STOWAGE_OK) print_error();
}

void Allocators::record_stream(void* address, void* stream) noexcept {
  if (address == nullptr) return;
  const int status = guarded([&] {
    for (const auto& [ordinal, device] : all())
      if (device->owns(address)) return device->record_stream(address, stream);
    throw InvalidInput(
        fmt::format("record_stream: {} is no memory that malloc gave; pass what it gave", address));
  });
  if (status != STOWAGE_OK) print_error();
}

void Allocators::empty_cache() noexcept {
  const int status = guarded([&] {
    for (const auto& [ordinal, device] : all()) device->trim();
  });
  if (status != STOWAGE_OK) print_error();
}

void Allocators::set_memory_fraction(double fraction, int device) noexcept {
  const int status = guarded([&] {
    if (!(fraction > 0 && fraction <= 1))
      throw InvalidInput(
          fmt::format("memory fraction: {} is not above 0 and at most 1; give a share of the device's "
                      "memory",
                      fraction));
    const MutexLock lock(mutex_);
    DeviceAllocator* const known = find(device);
    settings_[static_cast<std::size_t>(device)] = {std::nullopt, fraction};
    if (known != nullptr) known->allocator().set_limit(limit_of(device, known->total_memory()));
  });
  if (status != STOWAGE_OK) print_error();
}

int Allocators::set_limit(int device, Bytes limit) noexcept {
  return guarded([&] {
    const MutexLock lock(mutex_);
    if (device == STOWAGE_ALL_DEVICES) {
      for_all_.limit = limit;
      settings_ = {};
      for (const auto& [ordinal, known] : all()) known->allocator().set_limit(limit);
      return;
    }
    DeviceAllocator* const known = find(device);
    settings_[static_cast<std::size_t>(device)] = {limit, std::nullopt};
    if (known != nullptr) known->allocator().set_limit(limit);
  });
}

int Allocators::set_history(std::size_t events) noexcept {
  return guarded([&] {
    const MutexLock lock(mutex_);
    history_ = events;
  });
}

int Allocators::begin_iteration(int device) noexcept {
  return guarded([&] {
    if (!plans_periods_) return static_cast<void>(find(device));  // throws if the number is wrong
    at(device).allocator().begin_iteration();
  });
}

int Allocators::get_statistics(int device, stowage_statistics* statistics) noexcept {
  return guarded([&] {
    constexpr std::size_t first = offsetof(stowage_statistics, limit);
    if (statistics == nullptr || statistics->struct_bytes < first)
      throw InvalidInput("get_statistics: set struct_bytes to sizeof(struct stowage_statistics) first");
    stowage_statistics found{};
    if (DeviceAllocator* const known = find(device)) {
      add(found, known->allocator().statistics());
    } else {
      const MutexLock lock(mutex_);
      const Settings& own = settings_[static_cast<std::size_t>(device)];
      found.limit = own.limit.value_or(for_all_.limit.value_or(unlimited));
    }
    const std::size_t bytes = std::min<std::uint64_t>(sizeof found, statistics->struct_bytes) / first * first;
    found.struct_bytes = bytes;
    std::memcpy(statistics, &found, bytes);
  });
}

int Allocators::reset_peaks(int device) noexcept {
  return guarded([&] {
    if (DeviceAllocator* const known = find(device)) known->allocator().reset_peaks();
  });
}

int Allocators::snapshot(const char* path) noexcept {
  return guarded([&] {
    if (!is_set(path)) throw InvalidInput("snapshot: there is no path; name a file");
    std::vector<DeviceSnapshot> devices;
    for (const auto& [ordinal, device] : all()) devices.push_back(device->snapshot(ordinal));
    const bool pickled = std::string_view(path).ends_with(".pickle");
    write_file("snapshot", path, pickled ? snapshot_pickle(devices) : snapshot_json(devices));
  });
}

int Allocators::forget_stream(int device, void* stream) noexcept {
  return guarded([&] {
    if (DeviceAllocator* const known = find(device)) known->forget_stream(stream);
  });
}

int Allocators::begin_pool(int device, stowage_pool pool, StreamFilter wants) noexcept {
  return begin_pool_of(device, pool, [&wants] { return std::move(wants); });
}

int Allocators::begin_pool_of(int device, stowage_pool pool,
                              const std::function<StreamFilter()>& make) noexcept {
  return guarded([&] {
    StreamFilter wants = make();
    if (!wants) throw InvalidInput("begin pool: there is no filter; say which streams it is for");
    at(device).routes().begin(key_of(pool), std::move(wants));
  });
}

int Allocators::end_pool(int device, stowage_pool pool) noexcept {
  return guarded([&] { at(device).routes().end(key_of(pool)); });
}

int Allocators::release_pool(int device, stowage_pool pool) noexcept {
  return guarded([&] { at(device).routes().release(key_of(pool)); });
}

}  // namespace stowage::c_api
