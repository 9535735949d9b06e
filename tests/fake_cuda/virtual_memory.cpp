#include "tests/fake_cuda/virtual_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_cuda/memory.h"

namespace fake_cuda {
namespace {

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool is_granular(std::size_t bytes) { return bytes > 0 && bytes % VirtualMemory::granularity == 0; }

void withdraw(CUdeviceptr address, std::size_t bytes) {
  mmap(pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

VirtualMemory& VirtualMemory::get() {
  static VirtualMemory& memory = *new VirtualMemory;
  return memory;
}

CUresult VirtualMemory::reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment) {
  if (address == nullptr || !is_granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (alignment == 0) alignment = granularity;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment < granularity) alignment = granularity;
  const std::size_t space = bytes + alignment;
  void* start = mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto first = reinterpret_cast<CUdeviceptr>(start);
  const CUdeviceptr aligned = (first + alignment - 1) / alignment * alignment;
  if (aligned > first) munmap(start, aligned - first);
  munmap(pointer(aligned + bytes), first + space - (aligned + bytes));
  const std::lock_guard lock(mutex_);
  reservations_[aligned] = bytes;
  *address = aligned;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unreserve(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes || overlaps_mapping(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(pointer(address), bytes);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

void VirtualMemory::refund(const Physical& physical) {
  if (!physical.on_host) Memory::get().refund(physical.bytes);
}

CUresult VirtualMemory::create(CUmemGenericAllocationHandle* handle, std::size_t bytes, bool on_host) {
  if (handle == nullptr || !is_granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!on_host && !Memory::get().charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    if (file >= 0) close(file);
    if (!on_host) Memory::get().refund(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (view != MAP_FAILED) {
    fill_fresh(view, bytes);
    munmap(view, bytes);
  }
  const std::lock_guard lock(mutex_);
  *handle = next_handle_++;
  physical_[*handle] = {file, bytes, 0, 1, on_host};
  return CUDA_SUCCESS;
}

void VirtualMemory::drop_if_unused(CUmemGenericAllocationHandle handle) {
  const auto found = physical_.find(handle);
  if (found->second.handles > 0 || found->second.mappings > 0) return;
  close(found->second.file);
  refund(found->second);
  physical_.erase(found);
}

CUresult VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.handles == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.handles;
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::retain(CUmemGenericAllocationHandle* handle, CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto after = mappings_.upper_bound(address);
  if (handle == nullptr || after == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [start, mapping] = *std::prev(after);
  if (address - start >= mapping.bytes) return CUDA_ERROR_INVALID_VALUE;
  *handle = mapping.handle;
  ++physical_.at(mapping.handle).handles;
  return CUDA_SUCCESS;
}

bool VirtualMemory::is_reserved(CUdeviceptr address, std::size_t bytes) const {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return address - start < size && bytes <= size - (address - start);
}

bool VirtualMemory::overlaps_mapping(CUdeviceptr address, std::size_t bytes) const {
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + bytes) return true;
  return next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
}

bool VirtualMemory::covers_mappings(CUdeviceptr address, std::size_t bytes) const {
  CUdeviceptr reached = address;
  for (auto mapping = mappings_.find(address); reached < address + bytes; ++mapping) {
    if (mapping == mappings_.end() || mapping->first != reached) return false;
    reached += mapping->second.bytes;
  }
  return reached == address + bytes;
}

CUresult VirtualMemory::map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                            CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.handles == 0 || !is_granular(bytes) || offset != 0 ||
      bytes > found->second.bytes || address % granularity != 0 || !is_reserved(address, bytes) ||
      overlaps_mapping(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!Memory::get().charge_mappings(mappings_.size() + 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* view = mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.file, 0);
  if (view == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  ++found->second.mappings;
  mappings_[address] = {bytes, handle, false};
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unmap_locked(CUdeviceptr address, std::size_t bytes) {
  if (bytes == 0 || !covers_mappings(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  withdraw(address, bytes);
  for (auto mapping = mappings_.find(address);
       mapping != mappings_.end() && mapping->first < address + bytes;) {
    if (mapping->second.accessible) Memory::get().remove_mapped(pointer(mapping->first));
    --physical_.at(mapping->second.handle).mappings;
    drop_if_unused(mapping->second.handle);
    mapping = mappings_.erase(mapping);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unmap(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return unmap_locked(address, bytes);
}

CUresult VirtualMemory::set_access(CUdeviceptr address, std::size_t bytes, bool readable, bool writable) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || !covers_mappings(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const int protection = (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0);
  if (mprotect(pointer(address), bytes, protection) != 0) return CUDA_ERROR_INVALID_VALUE;
  for (auto mapping = mappings_.find(address); mapping != mappings_.end() && mapping->first < address + bytes;
       ++mapping) {
    mapping->second.accessible = readable;
    Memory::get().remove_mapped(pointer(mapping->first));
    if (readable) Memory::get().add_mapped(pointer(mapping->first), mapping->second.bytes);
  }
  return CUDA_SUCCESS;
}

bool VirtualMemory::is_of_host(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || !covers_mappings(address, bytes)) return false;
  for (auto mapping = mappings_.find(address); mapping != mappings_.end() && mapping->first < address + bytes;
       ++mapping) {
    if (!physical_.at(mapping->second.handle).on_host) return false;
  }
  return true;
}

VirtualMemory::Count VirtualMemory::count() {
  const std::lock_guard lock(mutex_);
  Count count{reservations_.size(), physical_.size(), 0, mappings_.size()};
  for (const auto& [handle, physical] : physical_) count.physical_bytes += physical.bytes;
  return count;
}

void VirtualMemory::clear() {
  const std::lock_guard lock(mutex_);
  while (!mappings_.empty()) unmap_locked(mappings_.begin()->first, mappings_.begin()->second.bytes);
  for (const auto& [handle, physical] : physical_) {
    close(physical.file);
    refund(physical);
  }
  physical_.clear();
  for (const auto& [address, bytes] : reservations_) munmap(pointer(address), bytes);
  reservations_.clear();
}

}  // namespace fake_cuda
