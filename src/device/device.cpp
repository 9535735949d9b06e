#include "stowage/device.h"

#include <atomic>
#include <cstdio>
#include <exception>

#include "stowage/error.h"

namespace stowage {
namespace {

// Prints the failure, up to a limit: if a device is lost, every owner reports the same.
void report(const char* failure) noexcept {
  constexpr int most = 8;
  static std::atomic<int> reports{0};
  const int before = reports.fetch_add(1, std::memory_order_relaxed);
  if (before < most) std::fprintf(stderr, "stowage: %s\n", failure);
  if (before == most) std::fputs("stowage: more could not be given back; the rest is not told\n", stderr);
}

// Runs `function` for an owner's destructor, where nobody can catch: failures are printed.
template <class Function>
void report_failure(Function&& function) noexcept {
  try {
    function();
  } catch (const std::exception& error) {
    report(error.what());
  }
}

}  // namespace

const char* to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::device:
      return "device";
    case MemoryKind::pinned:
      return "pinned";
    case MemoryKind::pageable:
      return "pageable";
  }
  return "?";
}

LaneId Device::adopt_lane(void*) {
  throw InvalidInput("adopt_lane: this device has no native streams; make a lane with create_lane");
}

DeviceMemory::DeviceMemory(Device& device, MemoryKind kind, Bytes bytes)
    : device_(&device),
      kind_(kind),
      data_(static_cast<std::byte*>(device.allocate(kind, bytes))),
      bytes_(bytes) {}

DeviceMemory::~DeviceMemory() {
  if (device_ != nullptr && data_ != nullptr) report_failure([&] { device_->release(kind_, data_); });
}

Lane::~Lane() {
  if (device_ != nullptr) report_failure([&] { device_->destroy_lane(id_); });
}

Event::~Event() {
  if (device_ != nullptr) report_failure([&] { device_->destroy_event(id_); });
}

}  // namespace stowage
