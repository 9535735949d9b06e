#include <fmt/core.h>

#include <algorithm>
#include <exception>

#include "src/device/cuda/cuda_device.h"
#include "stowage/error.h"

namespace stowage::cuda {

void CudaDevice::copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) {
  const CurrentDevice current = begin_call("copy");
  LaneView on;
  bool pageable = false;
  {
    const MutexLock lock(mutex_);
    on = view(lane, "copy");
    const Work work{"copy", name, lane, on.role};
    expect_kinds(work, to, from);
    if (bytes == 0) return;
    pageable |= note_access(work, {to, bytes, AccessMode::write}) == MemoryKind::pageable;
    pageable |= note_access(work, {const_cast<void*>(from), bytes, AccessMode::read}) == MemoryKind::pageable;
  }
  const bool to_device = on.role == LaneRole::h2d;
  // The runtime may read or write pageable memory within the call, so the stream's earlier work must be done.
  if (pageable) check(cudaStreamSynchronize(on.stream), "cudaStreamSynchronize", doing("copy", bytes, name));
  check(cudaMemcpyAsync(to, from, bytes, to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                        on.stream),
        "cudaMemcpyAsync", doing("copy", bytes, name));
  const MutexLock lock(mutex_);
  (to_device ? counters_.h2d_bytes : counters_.d2h_bytes) += bytes;
}

void CudaDevice::launch(LaneId lane, const Launch& launch) {
  const CurrentDevice current = begin_call("launch");
  if (launch.function == nullptr)
    throw InvalidInput(fmt::format("launch '{}': no function; give it one", launch.name));
  LaneView on;
  {
    const MutexLock lock(mutex_);
    on = view(lane, "launch");
    for (const Access& access : launch.accesses)
      if (access.bytes > 0) note_access({"launch", launch.name, lane, on.role}, access);
  }
  if (on.host == nullptr) return enqueue_kernels(lane, on.role, launch);
  on.host->submit(launch);
}

void CudaDevice::enqueue_kernels(LaneId lane, LaneRole role, const Launch& launch) const {
  try {
    launch.function(launch.context);
  } catch (const InvalidInput&) {
    throw;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const std::exception& error) {
    throw DeviceError(
        fmt::format("launch '{}' on {}: {}", launch.name, describe_lane(role, lane), error.what()), "launch",
        std::string(launch.name));
  }
}

void CudaDevice::discard(LaneId lane, void* address, Bytes bytes) {
  const CurrentDevice current = begin_call("discard");
  const MutexLock lock(mutex_);
  const LaneRole role = view(lane, "discard").role;
  if (bytes == 0) return;
  const auto found = memory_->find(address);
  if (found && found->kind != MemoryKind::device)
    throw InvalidInput("discard: the address is memory of the host; discard device memory only");
  expect_held({"discard", "discard", lane, role}, {address, bytes, AccessMode::write});
}

Memory::Found CudaDevice::expect_held(const Work& work, const Access& access) const {
  const auto refuse = [&](const std::string& why) {
    throw AccessViolation(fmt::format("{} '{}' on {} touches {} bytes at {}, {}", work.call, work.name,
                                      describe_lane(work.role, work.lane), access.bytes, access.address, why),
                          std::string(work.call));
  };
  const auto found = memory_->find(access.address, access.bytes);
  if (!found)
    refuse("which no live allocation holds: allocate them first, and keep them until the work is done");
  const auto begin = static_cast<Bytes>(static_cast<std::byte*>(access.address) - found->base);
  if (access.bytes > found->bytes - begin)
    refuse(fmt::format("which end past allocation {} ({} bytes): correct the access's size", found->number,
                       found->bytes));
  if (!found->is_present)
    refuse(fmt::format("not all of which is mapped in virtual range {}: map it first", found->number));
  if (work.role == LaneRole::host && found->kind == MemoryKind::device)
    refuse("which are device memory: the host cannot; copy them to host memory");
  return *found;
}

MemoryKind CudaDevice::note_access(const Work& work, const Access& access) {
  const Memory::Found held = expect_held(work, access);
  if (held.kind != MemoryKind::device) return held.kind;
  const auto begin = static_cast<Bytes>(static_cast<std::byte*>(access.address) - held.base);
  counters_.highest_device_byte = std::max(counters_.highest_device_byte, begin + access.bytes);
  return held.kind;
}

void CudaDevice::expect_kinds(const Work& work, const void* to, const void* from) const {
  if (work.role != LaneRole::h2d && work.role != LaneRole::d2h)
    throw InvalidInput(fmt::format("copy '{}': {} cannot copy; use an h2d or a d2h lane", work.name,
                                   describe_lane(work.role, work.lane)));
  const auto target = memory_->find(to);
  const auto source = memory_->find(from);
  if (!target || !source) return;  // `expect_held` reports it
  const bool in = work.role == LaneRole::h2d;
  if ((target->kind == MemoryKind::device) != in || (source->kind == MemoryKind::device) == in)
    throw InvalidInput(fmt::format(
        "copy '{}': {} copies from {}; give it one side of each kind, in that direction", work.name,
        describe_lane(work.role, work.lane), in ? "host to device memory" : "device to host memory"));
}

}  // namespace stowage::cuda
