// Memory of a CUDA device: allocates, and finds the allocation of every address.
//
// Device memory comes from the driver's virtual memory management if there is one (each allocation a whole
// number of granules, given back to the card at once), else from cudaMalloc. Without it `reserve` throws
// InvalidInput. A call that fails has changed nothing, except `unreserve` and `release`, which can be
// repeated and then continue where they stopped.
//
// Thread-safe; requires that the device is current. Calls that change something take turns, and hold no lock
// of `find` while the driver works: a copy or a launch does not wait for memory to be mapped.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/cuda/check.h"
#include "src/device/cuda/virtual_memory.h"
#include "src/device/topology.h"
#include "stowage/bytes.h"
#include "stowage/device.h"
#include "stowage/error.h"

namespace stowage::cuda {

// Host memory of exact size: anonymous pages near the device, page-locked where CUDA registers them.

// Maps zeroed pages, with huge pages advised. Pages are allocated on first touch, on `binder`'s node if it
// has one. The caller unmaps them by munmap. Throws OutOfMemory.
void* map_pageable(Bytes bytes, const MemoryBinder& binder, const Doing& doing);

// As map_pageable, but faulted in by parallel loops and page-locked. Throws OutOfMemory if the host has no
// more or CUDA may not lock more, and DeviceError.
void* pin(Bytes bytes, const MemoryBinder& binder, const Doing& doing);

// Requires that all work on the memory is done. If this throws, the memory is still there.
void unpin(void* address, Bytes bytes, const Doing& doing);

class Memory {
 public:
  struct Options {
    int ordinal = 0;
    Bytes total = 0;              // memory of the device
    bool virtual_memory = true;   // false: not used even if the driver has it
    std::string pci_bus_id = {};  // host memory is placed near this card
  };
  explicit Memory(const Options& options);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();  // frees everything, reports no errors

  void* allocate(MemoryKind kind, Bytes bytes) STOWAGE_EXCLUDES(changes_, table_);
  void release(MemoryKind kind, const void* address) STOWAGE_EXCLUDES(changes_, table_);

  Bytes granularity() const { return virtual_ == nullptr ? 2_MiB : virtual_->granularity(); }
  void* reserve(Bytes bytes) STOWAGE_EXCLUDES(changes_, table_);
  void unreserve(const void* address) STOWAGE_EXCLUDES(changes_, table_);
  // As Device::map_pieces and Device::unmap.
  void map(const void* range, Bytes offset, Bytes bytes, Bytes piece) STOWAGE_EXCLUDES(changes_, table_);
  void unmap(const void* range, Bytes offset, Bytes bytes) STOWAGE_EXCLUDES(changes_, table_);

  struct Found {
    std::byte* base = nullptr;
    Bytes bytes = 0;  // size that was asked for
    MemoryKind kind = MemoryKind::device;
    std::uint64_t number = 0;  // running number of the device's allocations, from 1
    bool is_present = false;   // the bytes asked for are mapped, as far as the allocation has them
  };
  // Returns the allocation that holds `address`, and whether `bytes` from there on can be touched.
  std::optional<Found> find(const void* address, Bytes bytes = 1) const STOWAGE_EXCLUDES(table_);
  // Physical bytes of the card in all allocations and ranges.
  Bytes held() const STOWAGE_EXCLUDES(table_);

 private:
  enum class Backing : std::uint8_t { pinned, pageable, plain, mapped, range };
  struct Allocation {
    std::byte* base = nullptr;
    Bytes bytes = 0;     // size that was asked for
    Bytes reserved = 0;  // address space: whole granules where backing is mapped or range
    Backing backing = Backing::plain;
    std::uint64_t number = 0;
    std::map<Bytes, Bytes> pieces = {};  // mapped pieces: end by begin, as offsets
    MemoryKind kind() const {
      if (backing == Backing::pageable) return MemoryKind::pageable;
      return backing == Backing::pinned ? MemoryKind::pinned : MemoryKind::device;
    }
    Bytes held() const;  // returns its physical bytes
    bool is_present(Bytes begin, Bytes end) const;
  };

  Doing doing(std::string_view function, Bytes bytes = 0) const;
  Backing backing_of(MemoryKind kind) const;
  void* back(Bytes bytes, Bytes reserved, Backing backing) STOWAGE_REQUIRES(changes_);
  void* add(Allocation allocation) STOWAGE_REQUIRES(changes_) STOWAGE_EXCLUDES(table_);
  // Unmaps what is mapped in [begin, end), run by run.
  void unmap_runs(Allocation& allocation, Bytes begin, Bytes end, const Doing& doing)
      STOWAGE_REQUIRES(changes_) STOWAGE_EXCLUDES(table_);
  void give_back(Allocation& allocation, const Doing& doing) STOWAGE_REQUIRES(changes_)
      STOWAGE_EXCLUDES(table_);
  void abandon(Allocation& allocation) noexcept STOWAGE_REQUIRES(changes_);

  // The returned allocations do not change while the caller holds `changes_`.
  Allocation& plain_at(MemoryKind kind, const void* address, std::string_view call) STOWAGE_REQUIRES(changes_)
      STOWAGE_EXCLUDES(table_);
  Allocation& range_at(const void* address, std::string_view call) STOWAGE_REQUIRES(changes_)
      STOWAGE_EXCLUDES(table_);
  void expect_granules(const Allocation& range, Bytes offset, Bytes bytes, std::string_view call) const;
  OutOfMemory out_of_memory(MemoryKind kind, Bytes bytes, std::string_view call, std::string_view why) const
      STOWAGE_EXCLUDES(table_);
  std::string account(MemoryKind kind) const STOWAGE_EXCLUDES(table_);

  const Options options_;
  const MemoryBinder binder_;
  std::unique_ptr<VirtualMemory> virtual_;  // null: plain allocations
  Mutex changes_;                           // held by calls that change something; taken before `table_`
  mutable Mutex table_;
  std::uint64_t allocations_ STOWAGE_GUARDED_BY(changes_) = 0;
  std::map<const std::byte*, Allocation> live_ STOWAGE_GUARDED_BY(table_);  // by base
};

}  // namespace stowage::cuda
