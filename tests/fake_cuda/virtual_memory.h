// Virtual memory management over host memory: a reservation is address space without access, physical
// memory a memfd, a mapping a MAP_FIXED view of it, which may be touched once access is set.
//
// Failures are CUresult values. Used by host threads alone.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace fake_cuda {

class VirtualMemory {
 public:
  static constexpr std::size_t granularity = std::size_t{2} << 20;
  static VirtualMemory& get();

  CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment);
  CUresult unreserve(CUdeviceptr address, std::size_t bytes);
  CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes, bool on_host = false);
  // The memory itself goes when its last mapping does.
  CUresult release(CUmemGenericAllocationHandle handle);
  // One more handle of what is mapped at `address`.
  CUresult retain(CUmemGenericAllocationHandle* handle, CUdeviceptr address);
  CUresult map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
               CUmemGenericAllocationHandle handle);
  // Whole mappings only.
  CUresult unmap(CUdeviceptr address, std::size_t bytes);
  CUresult set_access(CUdeviceptr address, std::size_t bytes, bool readable, bool writable);

  // Whether mappings of the host's memory fill the range.
  bool is_of_host(CUdeviceptr address, std::size_t bytes);

  struct Count {
    std::size_t reservations = 0, physical = 0, physical_bytes = 0, mappings = 0;
  };
  Count count();
  void clear();

 private:
  struct Physical {
    int file = -1;
    std::size_t bytes = 0;
    std::size_t mappings = 0;
    std::size_t handles = 1;
    bool on_host = false;  // no part of the card's account
  };
  void refund(const Physical& physical);
  struct Mapping {
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    bool accessible = false;
  };
  bool is_reserved(CUdeviceptr address, std::size_t bytes) const;
  bool covers_mappings(CUdeviceptr address, std::size_t bytes) const;
  bool overlaps_mapping(CUdeviceptr address, std::size_t bytes) const;
  void drop_if_unused(CUmemGenericAllocationHandle handle);
  CUresult unmap_locked(CUdeviceptr address, std::size_t bytes);

  std::mutex mutex_;
  std::map<CUdeviceptr, std::size_t> reservations_;
  std::map<CUdeviceptr, Mapping> mappings_;
  std::map<CUmemGenericAllocationHandle, Physical> physical_;
  CUmemGenericAllocationHandle next_handle_ = 1;
};

}  // namespace fake_cuda
