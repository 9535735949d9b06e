// Memory of a CUDA device: what is allocated, and where every address belongs. Not synchronised; one
// caller at a time, with the device current.
//
// Device memory comes from the driver's virtual memory management where that is there (each allocation a
// whole number of granules, given back to the card at once), else from cudaMalloc. Virtual ranges are mapped
// granule by granule, so that any part can be unmapped; where the driver cannot, `reserve` throws
// InvalidInput. A call that fails has changed nothing, but for `release`, `unmap` and `unreserve`, which
// can be repeated and then go on where they stopped.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/device/cuda/virtual_memory.h"
#include "src/device/topology.h"
#include "stowage/device.h"
#include "stowage/error.h"

namespace stowage::cuda {

enum class Backing : std::uint8_t { pinned, plain, mapped, range };

struct Allocation {
  std::byte* base = nullptr;
  Bytes bytes = 0;     // as asked
  Bytes reserved = 0;  // address space: whole granules where backing is mapped or range
  Backing backing = Backing::plain;
  std::uint64_t number = 0;   // the how-manieth of this device, from 1
  Bytes piece = 0;            // what is mapped and unmapped at once
  std::vector<bool> present;  // by piece
  MemoryKind kind() const { return backing == Backing::pinned ? MemoryKind::pinned : MemoryKind::device; }
  Bytes held() const;  // physical bytes
};

class Memory {
 public:
  struct Options {
    int ordinal = 0;
    Bytes total = 0;              // of the device
    bool virtual_memory = true;   // false: not even where the driver could
    std::string pci_bus_id = {};  // pinned memory goes near it
  };
  explicit Memory(const Options& options);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();  // gives everything back, in silence

  Allocation& allocate(MemoryKind kind, Bytes bytes);
  void release(MemoryKind kind, const void* address);

  Bytes granularity() const;
  Allocation& reserve(Bytes bytes);
  void unreserve(const void* address);
  void map(const void* range, Bytes offset, Bytes bytes);
  void unmap(const void* range, Bytes offset, Bytes bytes);

  // The allocation that holds `address`; null if none.
  const Allocation* find(const void* address) const;
  // Physical bytes of the card in all allocations and ranges.
  Bytes held() const;
  static bool is_present(const Allocation& allocation, Bytes begin, Bytes end);

 private:
  Doing doing(std::string_view function, Bytes bytes = 0) const;
  Allocation& add(void* base, Bytes bytes, Bytes reserved, Backing backing);
  void* back(Bytes bytes, Bytes reserved, Backing backing);
  // Maps or unmaps the pieces of [begin, end) that are not as wanted yet.
  void map_pieces(Allocation& allocation, Bytes begin, Bytes end, const Doing& doing);
  void unmap_pieces(Allocation& allocation, Bytes begin, Bytes end, const Doing& doing);
  void give_back(Allocation& allocation, const Doing& doing);
  void abandon(Allocation& allocation) noexcept;

  Allocation& plain_at(MemoryKind kind, const void* address, std::string_view call);
  Allocation& range_at(const void* address, std::string_view call);
  void expect_granules(const Allocation& range, Bytes offset, Bytes bytes, bool present,
                       std::string_view call) const;
  OutOfMemory out_of_memory(MemoryKind kind, Bytes bytes, std::string_view call, std::string_view why) const;
  std::string account(MemoryKind kind) const;

  const Options options_;
  const MemoryBinder binder_;
  std::unique_ptr<VirtualMemory> virtual_;  // null: plain allocations
  std::uint64_t allocations_ = 0;
  std::map<const std::byte*, Allocation> live_;  // by base
};

}  // namespace stowage::cuda
