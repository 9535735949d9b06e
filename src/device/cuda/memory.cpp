#include "src/device/cuda/memory.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <utility>

namespace stowage::cuda {
namespace {

constexpr std::size_t holders_shown = 8;

Bytes free_now() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

// Returns false if the action throws.
bool succeeds(const std::function<void()>& action) noexcept {
  try {
    action();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Bytes round_up(Bytes bytes, Bytes granularity) {
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace

Bytes Memory::Allocation::held() const {
  if (backing != Backing::mapped && backing != Backing::range) return bytes;
  Bytes sum = 0;
  for (const auto& [begin, end] : pieces) sum += end - begin;
  return sum;
}

bool Memory::Allocation::is_present(Bytes begin, Bytes end) const {
  if (backing != Backing::range) return true;
  auto piece = pieces.upper_bound(begin);
  if (piece != pieces.begin()) --piece;
  for (; begin < end && piece != pieces.end() && piece->first <= begin && piece->second > begin; ++piece)
    begin = piece->second;
  return begin >= end;
}

Memory::Memory(const Options& options) : options_(options), binder_(options.pci_bus_id) {
  if (options.virtual_memory && VirtualMemory::is_supported(driver_api(), options.ordinal))
    virtual_ = std::make_unique<VirtualMemory>(driver_api(), options.ordinal);
}

Memory::~Memory() {
  const MutexLock changing(changes_);
  const MutexLock lock(table_);
  for (auto& [base, allocation] : live_) abandon(allocation);
}

Doing Memory::doing(std::string_view function, Bytes bytes) const {
  return {function, {}, options_.ordinal, bytes};
}

void* Memory::add(Allocation allocation) {
  allocation.number = ++allocations_;
  const MutexLock lock(table_);
  return live_.emplace(allocation.base, std::move(allocation)).first->second.base;
}

Memory::Backing Memory::backing_of(MemoryKind kind) const {
  if (kind == MemoryKind::pinned) return Backing::pinned;
  if (kind == MemoryKind::pageable) return Backing::pageable;
  return virtual_ != nullptr ? Backing::mapped : Backing::plain;
}

void* Memory::back(Bytes bytes, Bytes reserved, Backing backing) {
  const Doing what = doing("allocate", bytes);
  if (backing == Backing::pinned) return pin(bytes, binder_, what);
  if (backing == Backing::pageable) return map_pageable(bytes, binder_, what);
  void* address = nullptr;
  if (backing == Backing::plain) {
    check(cudaMalloc(&address, bytes), "cudaMalloc", what);
    return address;
  }
  address = virtual_->reserve(reserved, what);
  try {
    virtual_->map(address, reserved, reserved, what);
  } catch (...) {
    succeeds([&] { virtual_->free(address, reserved, what); });
    throw;
  }
  return address;
}

void* Memory::allocate(MemoryKind kind, Bytes bytes) {
  if (bytes == 0) throw InvalidInput("allocate: zero bytes asked; ask for at least one");
  if (kind == MemoryKind::device && bytes > options_.total)
    throw out_of_memory(kind, bytes, "allocate", "the device has no more in all");
  const Backing backing = backing_of(kind);
  const bool mapped = backing == Backing::mapped;
  const Bytes reserved = mapped ? round_up(bytes, granularity()) : bytes;
  const MutexLock changing(changes_);
  try {
    Allocation allocation{static_cast<std::byte*>(back(bytes, reserved, backing)), bytes, reserved, backing};
    if (mapped) allocation.pieces = {{0, reserved}};
    return add(std::move(allocation));
  } catch (const OutOfMemory& error) {
    throw out_of_memory(kind, bytes, "allocate", error.what());
  }
}

void Memory::release(MemoryKind kind, const void* address) {
  const MutexLock changing(changes_);
  Allocation& allocation = plain_at(kind, address, "release");
  give_back(allocation, doing("release", allocation.bytes));
}

void* Memory::reserve(Bytes bytes) {
  if (virtual_ == nullptr)
    throw InvalidInput(
        "reserve: this device was opened without virtual memory, or its driver has none; use allocate");
  if (bytes == 0 || bytes % granularity() != 0)
    throw InvalidInput(
        fmt::format("reserve: {} bytes asked; ask for a multiple of {}", bytes, granularity()));
  const MutexLock changing(changes_);
  auto* const base = static_cast<std::byte*>(virtual_->reserve(bytes, doing("reserve", bytes)));
  return add({base, bytes, bytes, Backing::range});
}

void Memory::unreserve(const void* address) {
  const MutexLock changing(changes_);
  Allocation& range = range_at(address, "unreserve");
  give_back(range, doing("unreserve", range.bytes));
}

void Memory::map(const void* range, Bytes offset, Bytes bytes, Bytes piece) {
  const MutexLock changing(changes_);
  Allocation& allocation = range_at(range, "map");
  expect_granules(allocation, offset, bytes, "map");
  if (piece == 0 || piece % granularity() != 0)
    throw InvalidInput(
        fmt::format("map: pieces of {} bytes asked; ask for a multiple of {}", piece, granularity()));
  const auto behind = allocation.pieces.lower_bound(offset + bytes);
  if (behind != allocation.pieces.begin() && std::prev(behind)->second > offset)
    throw InvalidInput(fmt::format("map: {} bytes at offset {} are mapped already; map only what is not",
                                   std::prev(behind)->second - offset, offset));
  try {
    virtual_->map(allocation.base + offset, bytes, piece, doing("map", bytes));
  } catch (const OutOfMemory& error) {
    throw out_of_memory(MemoryKind::device, bytes, "map", error.what());
  }
  const MutexLock lock(table_);
  for (Bytes at = offset; at < offset + bytes; at += piece)
    allocation.pieces.emplace(at, std::min(at + piece, offset + bytes));
}

void Memory::unmap(const void* range, Bytes offset, Bytes bytes) {
  const MutexLock changing(changes_);
  Allocation& allocation = range_at(range, "unmap");
  expect_granules(allocation, offset, bytes, "unmap");
  const auto first = allocation.pieces.find(offset);
  const auto behind = allocation.pieces.lower_bound(offset + bytes);
  const bool whole = first != allocation.pieces.end() && std::prev(behind)->second == offset + bytes;
  if (!whole || !allocation.is_present(offset, offset + bytes))
    throw InvalidInput(
        fmt::format("unmap: {} bytes at offset {} are not mapped, or not in whole pieces; unmap whole pieces",
                    bytes, offset));
  unmap_runs(allocation, offset, offset + bytes, doing("unmap", bytes));
}

void Memory::unmap_runs(Allocation& allocation, Bytes begin, Bytes end, const Doing& doing) {
  for (auto first = allocation.pieces.lower_bound(begin);
       first != allocation.pieces.end() && first->first < end;) {
    auto last = std::next(first);
    Bytes run_end = first->second;
    for (; last != allocation.pieces.end() && last->first == run_end && run_end < end; ++last)
      run_end = last->second;
    virtual_->unmap(allocation.base + first->first, run_end - first->first, doing);
    const MutexLock lock(table_);
    first = allocation.pieces.erase(first, last);
  }
}

void Memory::give_back(Allocation& allocation, const Doing& doing) {
  switch (allocation.backing) {
    case Backing::pinned:
      unpin(allocation.base, allocation.bytes, doing);
      break;
    case Backing::pageable:
      munmap(allocation.base, allocation.bytes);
      break;
    case Backing::plain:
      check(cudaFree(allocation.base), "cudaFree", doing);
      break;
    case Backing::mapped:
    case Backing::range:
      unmap_runs(allocation, 0, allocation.reserved, doing);
      virtual_->free(allocation.base, allocation.reserved, doing);
      break;
  }
  const MutexLock lock(table_);
  live_.erase(allocation.base);
}

// As give_back, but continues past failures, and leaves the table alone.
void Memory::abandon(Allocation& allocation) noexcept {
  const Doing what{"close", {}, options_.ordinal};
  if (allocation.backing == Backing::plain) {
    cudaFree(allocation.base);
  } else if (allocation.backing == Backing::pinned) {
    cudaHostUnregister(allocation.base);
    munmap(allocation.base, allocation.bytes);
  } else if (allocation.backing == Backing::pageable) {
    munmap(allocation.base, allocation.bytes);
  } else {
    for (const auto& piece : allocation.pieces)
      succeeds([&] { virtual_->unmap(allocation.base + piece.first, piece.second - piece.first, what); });
    succeeds([&] { virtual_->free(allocation.base, allocation.reserved, what); });
  }
}

std::optional<Memory::Found> Memory::find(const void* address, Bytes bytes) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const MutexLock lock(table_);
  const auto after = live_.upper_bound(at);
  if (after == live_.begin()) return std::nullopt;
  const Allocation& allocation = std::prev(after)->second;
  if (at >= allocation.base + allocation.bytes) return std::nullopt;
  const auto begin = static_cast<Bytes>(at - allocation.base);
  const Bytes end = begin + std::min(bytes, allocation.bytes - begin);
  return Found{allocation.base, allocation.bytes, allocation.kind(), allocation.number,
               allocation.is_present(begin, end)};
}

Bytes Memory::held() const {
  const MutexLock lock(table_);
  Bytes sum = 0;
  for (const auto& [base, allocation] : live_)
    if (allocation.kind() == MemoryKind::device) sum += allocation.held();
  return sum;
}

Memory::Allocation& Memory::plain_at(MemoryKind kind, const void* address, std::string_view call) {
  const MutexLock lock(table_);
  const auto found = live_.find(static_cast<const std::byte*>(address));
  if (found == live_.end() || found->second.kind() != kind || found->second.backing == Backing::range)
    throw InvalidInput(
        fmt::format("{}: {} is not the address of a live {} allocation; pass what allocate returned", call,
                    address, to_string(kind)));
  return found->second;
}

Memory::Allocation& Memory::range_at(const void* address, std::string_view call) {
  const MutexLock lock(table_);
  const auto found = live_.find(static_cast<const std::byte*>(address));
  if (found == live_.end() || found->second.backing != Backing::range)
    throw InvalidInput(fmt::format(
        "{}: {} is not the address of a reserved range; pass what reserve returned", call, address));
  return found->second;
}

void Memory::expect_granules(const Allocation& range, Bytes offset, Bytes bytes,
                             std::string_view call) const {
  if (bytes == 0 || offset % granularity() != 0 || bytes % granularity() != 0 || offset > range.bytes ||
      bytes > range.bytes - offset)
    throw InvalidInput(fmt::format(
        "{}: {} bytes at offset {} asked of a range of {}; both must be multiples of {} and inside it", call,
        bytes, offset, range.bytes, granularity()));
}

OutOfMemory Memory::out_of_memory(MemoryKind kind, Bytes bytes, std::string_view call,
                                  std::string_view why) const {
  const Bytes free = kind == MemoryKind::device ? free_now() : 0;
  const std::string of_device =
      kind == MemoryKind::device ? fmt::format(", {} free of {}", free, options_.total) : "";
  return {
      fmt::format(
          "{}: {} bytes ({}) of {} memory asked on device {}{}; held: {}. {}. Release some of it, ask "
          "for less, or plan for a smaller budget",
          call, bytes, format_bytes(bytes), to_string(kind), options_.ordinal, of_device, account(kind), why),
      bytes, free};
}

std::string Memory::account(MemoryKind kind) const {
  const MutexLock lock(table_);
  std::vector<const Allocation*> holders;
  Bytes held[2] = {};
  for (const auto& [base, allocation] : live_) {
    held[allocation.kind() == MemoryKind::device ? 0 : 1] += allocation.held();
    if (allocation.kind() == kind && allocation.held() > 0) holders.push_back(&allocation);
  }
  std::sort(holders.begin(), holders.end(), [](const Allocation* a, const Allocation* b) {
    return a->held() != b->held() ? a->held() > b->held() : a->number < b->number;
  });
  std::string text = fmt::format("{} bytes of device and {} of host memory", held[0], held[1]);
  for (std::size_t i = 0; i < std::min(holders.size(), holders_shown); ++i)
    text += fmt::format("{} {} in {} {}", i == 0 ? ", the largest" : ",", holders[i]->held(),
                        holders[i]->backing == Backing::range ? "virtual range" : "allocation",
                        holders[i]->number);
  return text;
}

}  // namespace stowage::cuda
