#include "tests/fake_cuda/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/fake_cuda/state.h"

namespace fake_cuda {
namespace {

constexpr std::size_t alignment = 512;
constexpr std::size_t page = 4096;
constexpr std::size_t table_unit = std::size_t{64} << 10;
constexpr std::size_t filled_at_most = std::size_t{8} << 20;  // of one allocation: touching pages takes time

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }
std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }
std::size_t charged(std::size_t bytes) { return rounded_up(bytes, alignment); }

// Of those that lie in the range, as far as they are pages of this process's own.
unsigned pages_not_resident(void* address, std::size_t bytes) {
  const std::uintptr_t first = number(address) / page * page;
  std::vector<unsigned char> resident((number(address) + bytes - first + page - 1) / page);
  void* const begin = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr)
  if (mincore(begin, resident.size() * page, resident.data()) != 0) return 0;
  return static_cast<unsigned>(
      std::count_if(resident.begin(), resident.end(), [](unsigned char one) { return (one & 1U) == 0; }));
}

}  // namespace

void fill_fresh(void* address, std::size_t bytes) {
  std::memset(address, 0xff, std::min(bytes, filled_at_most));
}

Memory& Memory::get() {
  static Memory& memory = *new Memory;
  return memory;
}

bool Memory::charge_locked(std::size_t bytes) {
  const Settings settings = State::get().settings();
  const std::size_t room = settings.capacity - std::min(settings.capacity, settings.context);
  if (bytes > room || used_ > room - bytes) return false;
  used_ += bytes;
  return true;
}

// The card's tables of page-locked memory and of mappings: they grow, and stay.
bool Memory::charge_tables_locked(std::size_t pinned, std::size_t mappings) {
  const Settings settings = State::get().settings();
  if (pinned > settings.most_pinned) return false;
  const auto of_pinned = static_cast<std::size_t>(static_cast<double>(pinned) / (1U << 30U) *
                                                  static_cast<double>(settings.per_pinned_gib));
  const std::size_t tables[] = {rounded_up(of_pinned, table_unit), mappings * settings.per_mapping};
  const std::size_t more[] = {tables[0] - std::min(tables[0], pinned_tables_),
                              tables[1] - std::min(tables[1], mapping_tables_)};
  if (!charge_locked(more[0] + more[1])) return false;
  pinned_tables_ += more[0];
  mapping_tables_ += more[1];
  return true;
}

std::size_t Memory::pinned_bytes_locked() const {
  std::size_t bytes = 0;
  for (const auto& [start, range] : ranges_)
    if (range.kind == Kind::pinned || range.kind == Kind::registered) bytes += range.bytes;
  return bytes;
}

bool Memory::charge_mappings(std::size_t mappings) {
  const std::lock_guard lock(mutex_);
  return charge_tables_locked(0, mappings);
}

bool Memory::charge(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return charge_locked(bytes);
}

void Memory::refund(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}

void* Memory::allocate(Kind kind, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const bool has_room = kind == Kind::device ? charge_locked(charged(bytes))
                                             : charge_tables_locked(pinned_bytes_locked() + bytes, 0);
  if (!has_room) return nullptr;
  void* address = nullptr;
  // Of the exact size: rounding it up would hide an overrun from the address sanitizer.
  if (posix_memalign(&address, alignment, bytes) != 0) {
    if (kind == Kind::device) used_ -= charged(bytes);
    return nullptr;
  }
  fill_fresh(address, bytes);
  ranges_[number(address)] = {number(address), bytes, kind};
  return address;
}

bool Memory::release(Kind kind, void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(number(address));
  if (found == ranges_.end() || found->second.kind != kind) return false;
  if (kind == Kind::device) used_ -= charged(found->second.bytes);
  ranges_.erase(found);
  std::free(address);
  return true;
}

Memory::Registered Memory::register_host(void* address, std::size_t bytes) {
  if (address == nullptr || bytes == 0) return Registered::invalid;
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(number(address));
  const bool overlaps = range_of_locked(number(address)).has_value() ||
                        (next != ranges_.end() && next->first < number(address) + bytes);
  if (overlaps) return Registered::already;
  if (!charge_tables_locked(pinned_bytes_locked() + bytes, 0)) return Registered::no_memory;
  State::get().pages_pinned_unfaulted += pages_not_resident(address, bytes);
  ranges_[number(address)] = {number(address), bytes, Kind::registered};
  return Registered::done;
}

bool Memory::unregister_host(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(number(address));
  if (found == ranges_.end() || found->second.kind != Kind::registered) return false;
  ranges_.erase(found);
  return true;
}

void Memory::add_mapped(void* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  ranges_[number(address)] = {number(address), bytes, Kind::mapped};
}

void Memory::remove_mapped(void* address) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(number(address));
}

std::optional<Range> Memory::range_of_locked(std::uintptr_t address) {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const Range& range = std::prev(after)->second;
  if (address - range.start >= range.bytes) return std::nullopt;
  return range;
}

std::optional<Range> Memory::range_of(const void* address) {
  const std::lock_guard lock(mutex_);
  return range_of_locked(number(address));
}

bool Memory::holds(const void* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t end = number(address) + bytes;
  std::uintptr_t reached = number(address);
  while (reached < end) {
    const std::optional<Range> range = range_of_locked(reached);
    if (!range || (range->kind != Kind::mapped && range->start + range->bytes < end)) return false;
    reached = range->start + range->bytes;
  }
  return true;
}

std::size_t Memory::free_bytes() {
  const std::lock_guard lock(mutex_);
  const Settings settings = State::get().settings();
  return settings.capacity - std::min(settings.capacity, settings.context + used_);
}

Memory::Count Memory::count(Kind kind) {
  const std::lock_guard lock(mutex_);
  Count count;
  for (const auto& [start, range] : ranges_) {
    if (range.kind != kind) continue;
    ++count.ranges;
    count.bytes += range.bytes;
  }
  return count;
}

void Memory::clear() {
  const std::lock_guard lock(mutex_);
  for (const auto& [start, range] : ranges_) {
    if (range.kind == Kind::device || range.kind == Kind::pinned) {
      std::free(reinterpret_cast<void*>(start));  // NOLINT(performance-no-int-to-ptr)
    }
  }
  ranges_.clear();
  used_ = pinned_tables_ = mapping_tables_ = 0;
}

}  // namespace fake_cuda
