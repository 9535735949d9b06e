#include "src/device/cuda/memory.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <functional>

#include "src/device/cuda/pinned_memory.h"

namespace stowage::cuda {
namespace {

constexpr std::size_t holders_shown = 8;

std::string_view name_of(MemoryKind kind) { return kind == MemoryKind::device ? "device" : "pinned"; }

Bytes free_now() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

// False where it throws.
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

Bytes Allocation::held() const {
  if (backing == Backing::pinned || backing == Backing::plain) return bytes;
  return static_cast<Bytes>(std::count(present.begin(), present.end(), true)) * piece;
}

Memory::Memory(const Options& options) : options_(options), binder_(options.pci_bus_id) {
  if (options.virtual_memory && VirtualMemory::is_supported(driver_api(), options.ordinal))
    virtual_ = std::make_unique<VirtualMemory>(driver_api(), options.ordinal);
}

Memory::~Memory() {
  for (auto& [base, allocation] : live_) abandon(allocation);
}

Doing Memory::doing(std::string_view function, Bytes bytes) const {
  return {function, {}, options_.ordinal, bytes};
}

Allocation& Memory::add(void* base, Bytes bytes, Bytes reserved, Backing backing) {
  Allocation& allocation = live_[static_cast<std::byte*>(base)];
  allocation.base = static_cast<std::byte*>(base);
  allocation.bytes = bytes;
  allocation.reserved = reserved;
  allocation.backing = backing;
  allocation.number = ++allocations_;
  allocation.piece = backing == Backing::range ? granularity() : reserved;
  if (backing == Backing::range || backing == Backing::mapped)
    allocation.present.assign(reserved / allocation.piece, false);
  return allocation;
}

void* Memory::back(Bytes bytes, Bytes reserved, Backing backing) {
  const Doing what = doing("allocate", bytes);
  if (backing == Backing::pinned) return pin(bytes, binder_, what);
  if (backing == Backing::mapped) return virtual_->reserve(reserved, what);
  void* address = nullptr;
  check(cudaMalloc(&address, bytes), "cudaMalloc", what);
  return address;
}

Allocation& Memory::allocate(MemoryKind kind, Bytes bytes) {
  if (bytes == 0) throw InvalidInput("allocate: zero bytes asked; ask for at least one");
  if (kind == MemoryKind::device && bytes > options_.total)
    throw out_of_memory(kind, bytes, "allocate", "the device has no more in all");
  const bool mapped = kind == MemoryKind::device && virtual_ != nullptr;
  const Backing backing = kind == MemoryKind::pinned ? Backing::pinned
                          : mapped                   ? Backing::mapped
                                                     : Backing::plain;
  const Bytes reserved = mapped ? round_up(bytes, granularity()) : bytes;
  try {
    Allocation& allocation = add(back(bytes, reserved, backing), bytes, reserved, backing);
    if (!mapped) return allocation;
    try {
      map_pieces(allocation, 0, reserved, doing("allocate", bytes));
    } catch (...) {
      abandon(allocation);
      live_.erase(allocation.base);
      throw;
    }
    return allocation;
  } catch (const OutOfMemory& error) {
    throw out_of_memory(kind, bytes, "allocate", error.what());
  }
}

void Memory::release(MemoryKind kind, const void* address) {
  Allocation& allocation = plain_at(kind, address, "release");
  give_back(allocation, doing("release", allocation.bytes));
}

Bytes Memory::granularity() const { return virtual_ == nullptr ? 2_MiB : virtual_->granularity(); }

Allocation& Memory::reserve(Bytes bytes) {
  if (virtual_ == nullptr)
    throw InvalidInput(
        "reserve: this device was opened without virtual memory, or its driver has none; use allocate");
  if (bytes == 0 || bytes % granularity() != 0)
    throw InvalidInput(
        fmt::format("reserve: {} bytes asked; ask for a multiple of {}", bytes, granularity()));
  return add(virtual_->reserve(bytes, doing("reserve", bytes)), bytes, bytes, Backing::range);
}

void Memory::unreserve(const void* address) {
  Allocation& range = range_at(address, "unreserve");
  give_back(range, doing("unreserve", range.bytes));
}

void Memory::map(const void* range, Bytes offset, Bytes bytes) {
  Allocation& allocation = range_at(range, "map");
  expect_granules(allocation, offset, bytes, false, "map");
  try {
    map_pieces(allocation, offset, offset + bytes, doing("map", bytes));
  } catch (const OutOfMemory& error) {
    throw out_of_memory(MemoryKind::device, bytes, "map", error.what());
  }
}

void Memory::unmap(const void* range, Bytes offset, Bytes bytes) {
  Allocation& allocation = range_at(range, "unmap");
  expect_granules(allocation, offset, bytes, true, "unmap");
  unmap_pieces(allocation, offset, offset + bytes, doing("unmap", bytes));
}

void Memory::map_pieces(Allocation& allocation, Bytes begin, Bytes end, const Doing& doing) {
  Bytes at = begin;
  try {
    for (; at < end; at += allocation.piece) {
      virtual_->map(allocation.base + at, allocation.piece, doing);
      allocation.present[at / allocation.piece] = true;
    }
  } catch (...) {
    // What cannot be undone stays mapped, and is tried again at the end.
    succeeds([&] { unmap_pieces(allocation, begin, at, doing); });
    throw;
  }
}

void Memory::unmap_pieces(Allocation& allocation, Bytes begin, Bytes end, const Doing& doing) {
  for (Bytes at = begin; at < end; at += allocation.piece) {
    if (!allocation.present[at / allocation.piece]) continue;
    virtual_->unmap(allocation.base + at, allocation.piece, doing);
    allocation.present[at / allocation.piece] = false;
  }
}

void Memory::give_back(Allocation& allocation, const Doing& doing) {
  switch (allocation.backing) {
    case Backing::pinned:
      unpin(allocation.base, allocation.bytes, doing);
      break;
    case Backing::plain:
      check(cudaFree(allocation.base), "cudaFree", doing);
      break;
    case Backing::mapped:
    case Backing::range:
      unmap_pieces(allocation, 0, allocation.reserved, doing);
      virtual_->free(allocation.base, allocation.reserved, doing);
      break;
  }
  live_.erase(allocation.base);
}

// As give_back, but goes on past failures, and leaves the table alone.
void Memory::abandon(Allocation& allocation) noexcept {
  const Doing what{"close", {}, options_.ordinal};
  if (allocation.backing == Backing::plain) {
    cudaFree(allocation.base);
  } else if (allocation.backing == Backing::pinned) {
    cudaHostUnregister(allocation.base);
    munmap(allocation.base, allocation.bytes);
  } else {
    for (Bytes at = 0; at < allocation.reserved; at += allocation.piece)
      succeeds([&] { unmap_pieces(allocation, at, at + allocation.piece, what); });
    succeeds([&] { virtual_->free(allocation.base, allocation.reserved, what); });
  }
}

const Allocation* Memory::find(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const auto after = live_.upper_bound(at);
  if (after == live_.begin()) return nullptr;
  const Allocation& allocation = std::prev(after)->second;
  return at < allocation.base + allocation.bytes ? &allocation : nullptr;
}

Bytes Memory::held() const {
  Bytes sum = 0;
  for (const auto& [base, allocation] : live_)
    if (allocation.kind() == MemoryKind::device) sum += allocation.held();
  return sum;
}

bool Memory::is_present(const Allocation& allocation, Bytes begin, Bytes end) {
  if (allocation.backing != Backing::range) return true;
  for (Bytes piece = begin / allocation.piece; piece * allocation.piece < end; ++piece)
    if (!allocation.present[piece]) return false;
  return true;
}

Allocation& Memory::plain_at(MemoryKind kind, const void* address, std::string_view call) {
  const auto found = live_.find(static_cast<const std::byte*>(address));
  if (found == live_.end() || found->second.kind() != kind || found->second.backing == Backing::range)
    throw InvalidInput(
        fmt::format("{}: {} is not the address of a live {} allocation; pass what allocate returned", call,
                    address, name_of(kind)));
  return found->second;
}

Allocation& Memory::range_at(const void* address, std::string_view call) {
  const auto found = live_.find(static_cast<const std::byte*>(address));
  if (found == live_.end() || found->second.backing != Backing::range)
    throw InvalidInput(fmt::format(
        "{}: {} is not the address of a reserved range; pass what reserve returned", call, address));
  return found->second;
}

void Memory::expect_granules(const Allocation& range, Bytes offset, Bytes bytes, bool present,
                             std::string_view call) const {
  if (bytes == 0 || offset % range.piece != 0 || bytes % range.piece != 0 || offset > range.bytes ||
      bytes > range.bytes - offset)
    throw InvalidInput(fmt::format(
        "{}: {} bytes at offset {} asked of a range of {}; both must be multiples of {} and inside it", call,
        bytes, offset, range.bytes, range.piece));
  for (Bytes at = offset; at < offset + bytes; at += range.piece)
    if (range.present[at / range.piece] != present)
      throw InvalidInput(fmt::format("{}: the granule at offset {} is {}; {} only what is {}", call, at,
                                     present ? "not mapped" : "mapped already", call,
                                     present ? "mapped" : "not"));
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
          call, bytes, format_bytes(bytes), name_of(kind), options_.ordinal, of_device, account(kind), why),
      bytes, free};
}

std::string Memory::account(MemoryKind kind) const {
  std::vector<const Allocation*> holders;
  Bytes held[2] = {};
  for (const auto& [base, allocation] : live_) {
    held[allocation.kind() == MemoryKind::device ? 0 : 1] += allocation.held();
    if (allocation.kind() == kind && allocation.held() > 0) holders.push_back(&allocation);
  }
  std::sort(holders.begin(), holders.end(), [](const Allocation* a, const Allocation* b) {
    return a->held() != b->held() ? a->held() > b->held() : a->number < b->number;
  });
  std::string text = fmt::format("{} bytes of device and {} of pinned memory", held[0], held[1]);
  for (std::size_t i = 0; i < std::min(holders.size(), holders_shown); ++i)
    text += fmt::format("{} {} in {} {}", i == 0 ? ", the largest" : ",", holders[i]->held(),
                        holders[i]->backing == Backing::range ? "virtual range" : "allocation",
                        holders[i]->number);
  return text;
}

}  // namespace stowage::cuda
