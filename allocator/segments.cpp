#include "allocator/segments.h"

#include <algorithm>
#include <exception>

namespace stowage::caching {

Segments::Segments(Device& device, Bytes bytes)
    : device_(device),
      granule_(std::max(2_MiB, device.granularity())),
      bytes_((bytes + granule_ - 1) / granule_ * granule_),
      base_(static_cast<std::byte*>(device.reserve(bytes_))) {}

Segments::~Segments() {
  for (std::uint64_t tries = 0; tries < 2; ++tries) {
    try {
      device_.unreserve(base_);  // unmaps what is mapped
      return;
    } catch (const std::exception&) {
      continue;  // what is refused twice goes with the device
    }
  }
}

void Segments::map(const std::vector<Interval>& runs, std::vector<Interval>& left) {
  const std::uint64_t step = std::max<std::uint64_t>(1, chunk / granule_);
  std::vector<Interval> done;
  try {
    for (const Interval& run : runs)
      for (std::uint64_t at = run.begin; at < run.end; at += step) {
        const Interval piece{at, std::min(at + step, run.end)};
        done.push_back(piece);
        device_.map(base_, piece.begin * granule_, piece.length() * granule_);
        mapped_ += piece.length();
        ++counters_.maps;
      }
  } catch (...) {
    done.pop_back();
    left = unmap(done);
    throw;
  }
}

std::vector<Interval> Segments::unmap(const std::vector<Interval>& runs) noexcept {
  std::vector<Interval> refused;
  for (const Interval& run : runs)
    for (std::uint64_t at = run.begin; at < run.end; ++at)
      if (!unmap_one(at)) refused.push_back({at, at + 1});
  return refused;
}

bool Segments::unmap_one(std::uint64_t granule) noexcept {
  try {
    device_.unmap(base_, granule * granule_, granule_);
  } catch (const std::exception&) {
    return false;
  }
  --mapped_;
  ++counters_.unmaps;
  return true;
}

}  // namespace stowage::caching
