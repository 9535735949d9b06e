// Memory of the simulated device: allocations under hard capacities of device and of pinned bytes, pageable
// allocations beside them, and the address space of virtual ranges. Not synchronised.
//
// Owns anonymous mappings, and unmaps them in the destructor. Released device blocks of up to 1 MiB in all
// stay mapped and poisoned for a while, so that a stale read finds NaNs; larger blocks are unmapped at once,
// so that a stale read faults.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/device.h"
#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage::simulated {

struct Allocation {
  std::byte* base = nullptr;
  Bytes bytes = 0;
  MemoryKind kind = MemoryKind::device;
  std::uint64_t number = 0;       // running number of the device's allocations, from 1
  bool reserved = false;          // a virtual range
  std::vector<bool> mapped;       // whether each granule of a virtual range is mapped
  std::map<Bytes, Bytes> pieces;  // pieces of a virtual range above a granule: end by begin
  std::uint32_t range = 0;        // id that the owner gives the allocation
};

class Memory {
 public:
  static constexpr Bytes granularity = 64_KiB;

  Memory(Bytes capacity, Bytes host_capacity, Poison poison);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // Device bytes are poisoned, host bytes zero. Throw OutOfMemory with the account, and InvalidInput for zero
  // bytes. The reference is valid until the release.
  Allocation& allocate(MemoryKind kind, Bytes bytes);
  Allocation& reserve(Bytes bytes);
  // Mapped bytes are poisoned.
  void map(Allocation& range, Bytes offset, Bytes bytes, Bytes piece = granularity);
  void unmap(Allocation& range, Bytes offset, Bytes bytes);  // unmaps whole pieces, which become inaccessible
  void release(Allocation& allocation);                      // also unmaps mapped granules

  // Returns the allocation that holds `address`; null if none.
  Allocation* find(const void* address);
  // Return the plain allocation (or virtual range) that starts at `address`. Throw InvalidInput.
  Allocation& plain_at(MemoryKind kind, const void* address, std::string_view call);
  Allocation& reserved_at(const void* address, std::string_view call);
  // Throws InvalidInput unless [offset, offset + bytes) are whole granules of `range`, all mapped or
  // all unmapped as `mapped` says.
  void expect_granules(const Allocation& range, Bytes offset, Bytes bytes, bool mapped,
                       std::string_view call) const;

  static bool is_mapped(const Allocation& allocation, Bytes begin, Bytes end);

  MemoryInfo device_info() const {
    const Pool& device = pool(MemoryKind::device);
    return {device.capacity, device.capacity - device.used};
  }
  // Returns the error for `bytes` more of `kind`, which lists the holders by kind, largest first.
  OutOfMemory out_of_memory(MemoryKind kind, Bytes bytes, std::string_view call) const;
  Poison poison() const { return poison_; }

 private:
  struct Pool {
    Bytes capacity = 0;
    Bytes used = 0;
  };
  struct Freed {
    std::byte* base = nullptr;
    Bytes bytes = 0;
  };
  static void expect_whole_pieces(const Allocation& range, Bytes offset, Bytes bytes);
  Pool& pool(MemoryKind kind) { return pools_[static_cast<std::size_t>(kind)]; }
  const Pool& pool(MemoryKind kind) const { return pools_[static_cast<std::size_t>(kind)]; }
  Allocation& add(std::byte* base, Bytes bytes, MemoryKind kind, bool reserved);
  void quarantine(Freed freed);
  std::string account(MemoryKind kind) const;

  std::array<Pool, 3> pools_;  // by kind
  Poison poison_;
  std::uint64_t allocations_ = 0;
  std::map<const std::byte*, Allocation> live_;  // by base
  std::deque<Freed> freed_;                      // oldest first
  Bytes freed_bytes_ = 0;
};

// Poison of dead device bytes: NaN as f16, bf16, f32 and f64, and signalling as f64 and in every other
// f32, so that arithmetic on it shows.

// The word whose bytes fill memory, by address modulo 8.
inline constexpr std::uint64_t poison_word = 0x7ff47ff47fa07fa0;

// Poison::full fills every byte; sampled fills one aligned word in each 256 bytes, and the first and last
// 8 bytes.
void fill_poison(void* begin, Bytes bytes, Poison poison);

}  // namespace stowage::simulated
