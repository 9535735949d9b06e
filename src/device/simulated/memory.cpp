#include "src/device/simulated/memory.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace stowage::simulated {
namespace {

constexpr Bytes quarantine_bytes = 1_MiB;
constexpr std::size_t holders_shown = 8;

// Returns null if the host has no more.
std::byte* map_pages(void* where, Bytes bytes, int protection, int flags) {
  void* const base = mmap(where, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

Bytes mapped_bytes(const Allocation& allocation) {
  if (!allocation.reserved) return allocation.bytes;
  return static_cast<Bytes>(std::count(allocation.mapped.begin(), allocation.mapped.end(), true)) *
         Memory::granularity;
}

static_assert(std::endian::native == std::endian::little);

void fill_bytes(std::byte* at, Bytes bytes) {
  const auto phase = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) % 8);
  std::uint64_t word = std::rotr(poison_word, static_cast<int>(8 * phase));
  for (; bytes >= 8; at += 8, bytes -= 8) std::memcpy(at, &word, 8);
  std::memcpy(at, &word, bytes);
}

}  // namespace

Memory::Memory(Bytes capacity, Bytes host_capacity, Poison poison)
    : pools_{{{capacity, 0}, {host_capacity, 0}, {unlimited, 0}}}, poison_(poison) {}

Memory::~Memory() {
  for (const auto& [base, allocation] : live_) munmap(allocation.base, allocation.bytes);
  for (const Freed& freed : freed_) munmap(freed.base, freed.bytes);
}

Allocation& Memory::allocate(MemoryKind kind, Bytes bytes) {
  if (bytes == 0) throw InvalidInput("allocate: zero bytes asked; ask for at least one");
  Pool& from = pool(kind);
  if (bytes > from.capacity - from.used) throw out_of_memory(kind, bytes, "allocate");
  std::byte* const base = map_pages(nullptr, bytes, PROT_READ | PROT_WRITE, 0);
  if (base == nullptr) throw out_of_memory(kind, bytes, "allocate (the host has no more)");
  from.used += bytes;
  if (kind == MemoryKind::device) fill_poison(base, bytes, poison_);
  if (kind == MemoryKind::pageable) madvise(base, bytes, MADV_HUGEPAGE);  // only advice
  return add(base, bytes, kind, false);
}

Allocation& Memory::reserve(Bytes bytes) {
  if (bytes == 0 || bytes % granularity != 0)
    throw InvalidInput(fmt::format("reserve: {} bytes asked; ask for a multiple of {}", bytes, granularity));
  std::byte* const base = map_pages(nullptr, bytes, PROT_NONE, MAP_NORESERVE);
  if (base == nullptr)
    throw out_of_memory(MemoryKind::device, bytes, "reserve (the host has no address space)");
  Allocation& range = add(base, bytes, MemoryKind::device, true);
  range.mapped.assign(bytes / granularity, false);
  return range;
}

void Memory::map(Allocation& range, Bytes offset, Bytes bytes, Bytes piece) {
  expect_granules(range, offset, bytes, false, "map");
  if (piece == 0 || piece % granularity != 0)
    throw InvalidInput(
        fmt::format("map: pieces of {} bytes asked; ask for a multiple of {}", piece, granularity));
  Pool& device = pool(MemoryKind::device);
  if (bytes > device.capacity - device.used) throw out_of_memory(MemoryKind::device, bytes, "map");
  if (map_pages(range.base + offset, bytes, PROT_READ | PROT_WRITE, MAP_FIXED) == nullptr)
    throw out_of_memory(MemoryKind::device, bytes, "map (the host has no more)");
  device.used += bytes;
  fill_poison(range.base + offset, bytes, poison_);
  const auto first = range.mapped.begin() + static_cast<std::ptrdiff_t>(offset / granularity);
  std::fill_n(first, bytes / granularity, true);
  for (Bytes at = offset; piece > granularity && at < offset + bytes; at += piece)
    range.pieces[at] = std::min(at + piece, offset + bytes);
}

// Throws InvalidInput where one end of [offset, offset + bytes) cuts a piece.
void Memory::expect_whole_pieces(const Allocation& range, Bytes offset, Bytes bytes) {
  for (const Bytes end : {offset, offset + bytes}) {
    const auto after = range.pieces.lower_bound(end);
    if (after == range.pieces.begin() || std::prev(after)->second <= end) continue;
    throw InvalidInput(
        fmt::format("unmap: {} bytes at offset {} cut the piece from {} to {}; unmap it as a whole", bytes,
                    offset, std::prev(after)->first, std::prev(after)->second));
  }
}

void Memory::unmap(Allocation& range, Bytes offset, Bytes bytes) {
  expect_granules(range, offset, bytes, true, "unmap");
  expect_whole_pieces(range, offset, bytes);
  if (map_pages(range.base + offset, bytes, PROT_NONE, MAP_FIXED | MAP_NORESERVE) == nullptr)
    throw DeviceError("unmap: the host refused; raise vm.max_map_count", "unmap");
  pool(MemoryKind::device).used -= bytes;
  const auto first = range.mapped.begin() + static_cast<std::ptrdiff_t>(offset / granularity);
  std::fill_n(first, bytes / granularity, false);
  range.pieces.erase(range.pieces.lower_bound(offset), range.pieces.lower_bound(offset + bytes));
}

void Memory::release(Allocation& allocation) {
  pool(allocation.kind).used -= mapped_bytes(allocation);
  const Freed freed{allocation.base, allocation.bytes};
  const bool keep = allocation.kind == MemoryKind::device && !allocation.reserved &&
                    poison_ != Poison::none && allocation.bytes <= quarantine_bytes;
  live_.erase(allocation.base);
  if (keep)
    quarantine(freed);
  else
    munmap(freed.base, freed.bytes);
}

void Memory::quarantine(Freed freed) {
  fill_poison(freed.base, freed.bytes, poison_);
  freed_.push_back(freed);
  freed_bytes_ += freed.bytes;
  while (freed_bytes_ > quarantine_bytes) {
    munmap(freed_.front().base, freed_.front().bytes);
    freed_bytes_ -= freed_.front().bytes;
    freed_.pop_front();
  }
}

Allocation& Memory::add(std::byte* base, Bytes bytes, MemoryKind kind, bool reserved) {
  Allocation& allocation = live_[base];
  allocation.base = base;
  allocation.bytes = bytes;
  allocation.kind = kind;
  allocation.reserved = reserved;
  allocation.number = ++allocations_;
  return allocation;
}

Allocation* Memory::find(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  auto found = live_.upper_bound(at);
  if (found == live_.begin()) return nullptr;
  Allocation& allocation = std::prev(found)->second;
  return at < allocation.base + allocation.bytes ? &allocation : nullptr;
}

Allocation& Memory::plain_at(MemoryKind kind, const void* address, std::string_view call) {
  Allocation* const found = find(address);
  if (found == nullptr || found->base != address || found->kind != kind || found->reserved)
    throw InvalidInput(
        fmt::format("{}: {} is not the address of a live {} allocation; pass what allocate returned", call,
                    address, to_string(kind)));
  return *found;
}

Allocation& Memory::reserved_at(const void* address, std::string_view call) {
  Allocation* const found = find(address);
  if (found == nullptr || found->base != address || !found->reserved)
    throw InvalidInput(fmt::format(
        "{}: {} is not the address of a reserved range; pass what reserve returned", call, address));
  return *found;
}

void Memory::expect_granules(const Allocation& range, Bytes offset, Bytes bytes, bool mapped,
                             std::string_view call) const {
  if (bytes == 0 || offset % granularity != 0 || bytes % granularity != 0 || offset > range.bytes ||
      bytes > range.bytes - offset)
    throw InvalidInput(
        fmt::format("{}: {} bytes at offset {} asked of a range of {}; both must be multiples of {} and "
                    "inside it",
                    call, bytes, offset, range.bytes, granularity));
  for (Bytes at = offset; at < offset + bytes; at += granularity)
    if (range.mapped[at / granularity] != mapped)
      throw InvalidInput(fmt::format("{}: the granule at offset {} is {}; {} only what is {}", call, at,
                                     mapped ? "not mapped" : "mapped already", call,
                                     mapped ? "mapped" : "not"));
}

bool Memory::is_mapped(const Allocation& allocation, Bytes begin, Bytes end) {
  if (!allocation.reserved) return true;
  for (Bytes granule = begin / granularity; granule * granularity < end; ++granule)
    if (!allocation.mapped[granule]) return false;
  return true;
}

OutOfMemory Memory::out_of_memory(MemoryKind kind, Bytes bytes, std::string_view call) const {
  const Pool& from = pool(kind);
  const Bytes free = from.capacity - from.used;
  const std::string limit = from.capacity == unlimited
                                ? "there is no limit of its own"
                                : fmt::format("{} free of a limit of {}", free, from.capacity);
  return {fmt::format("{}: {} bytes ({}) of {} memory asked, {}; held: {}. Release some of it, ask for less, "
                      "or open the device with a larger {}",
                      call, bytes, format_bytes(bytes), to_string(kind), limit, account(kind),
                      kind == MemoryKind::device ? "capacity" : "host_capacity"),
          bytes, free};
}

std::string Memory::account(MemoryKind kind) const {
  struct Holder {
    Bytes bytes;
    const Allocation* allocation;
  };
  std::vector<Holder> holders;
  for (const auto& [base, allocation] : live_)
    if (allocation.kind == kind && mapped_bytes(allocation) > 0)
      holders.push_back({mapped_bytes(allocation), &allocation});
  std::sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.allocation->number < b.allocation->number;
  });
  std::string text = fmt::format("{} bytes of {} memory in {} allocations", pool(kind).used, to_string(kind),
                                 holders.size());
  for (std::size_t i = 0; i < std::min(holders.size(), holders_shown); ++i)
    text += fmt::format("{} {} in {} {}", i == 0 ? ", the largest" : ",", holders[i].bytes,
                        holders[i].allocation->reserved ? "virtual range" : "allocation",
                        holders[i].allocation->number);
  const MemoryKind other = kind == MemoryKind::device ? MemoryKind::pinned : MemoryKind::device;
  return text + fmt::format("; {} bytes of {} memory", pool(other).used, to_string(other));
}

void fill_poison(void* begin, Bytes bytes, Poison poison) {
  auto* const first = static_cast<std::byte*>(begin);
  if (poison == Poison::none) return;
  if (poison == Poison::full) return fill_bytes(first, bytes);
  constexpr Bytes word = 8, stride = 256;
  const Bytes edge = std::min(bytes, word);
  fill_bytes(first, edge);
  fill_bytes(first + (bytes - edge), edge);
  const Bytes aligned = (stride - reinterpret_cast<std::uintptr_t>(first) % stride) % stride;
  for (Bytes at = aligned; at + word <= bytes; at += stride) fill_bytes(first + at, word);
}

}  // namespace stowage::simulated
