// Pinned host memory for the standard library's containers: a std::pmr::memory_resource over a device's
// pinned memory, kept and reused by exact size (allocator/pinned_pool.h).
//
// Thread-safe. The device outlives it, and it outlives what it gave: containers hold a pointer to it. Memory
// that has not come back when the resource dies is given up with it. Contents may be copied from and to by
// lanes while nobody changes them. Memory may be given back while a transfer on it still runs only if whoever
// gets it next is ordered behind that transfer. Errors: OutOfMemory with the device's account, which is no
// std::bad_alloc; InvalidInput for an alignment that is no power of two, and for an address that it did not
// give (a container's destructor turns that into the program's end).
#pragma once

#include <memory>
#include <memory_resource>

#include "stowage/device.h"

namespace stowage {

struct HostMemoryStatistics {
  Bytes in_use = 0;               // bytes that callers hold, as the device allocated them
  Bytes cached = 0;               // bytes held for reuse
  Bytes peak = 0;                 // largest sum of in_use and cached
  std::uint64_t allocations = 0;  // allocations taken from the device
  std::uint64_t reuses = 0;       // allocations taken from the cache
};

class HostMemoryResource final : public std::pmr::memory_resource {
 public:
  explicit HostMemoryResource(Device& device);
  HostMemoryResource(const HostMemoryResource&) = delete;
  HostMemoryResource& operator=(const HostMemoryResource&) = delete;
  ~HostMemoryResource() override;

  // Gives what is cached back to the device. Transfers on it must have been synchronised.
  void trim();
  HostMemoryStatistics statistics() const;

 private:
  // Takes any alignment; one above 256 costs as many bytes more.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* address, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace stowage
