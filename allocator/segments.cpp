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
      device_.unreserve(base_);  // unmaps the mapped memory too
      return;
    } catch (const std::exception&) {
      continue;  // memory that the device refuses twice ends with the device
    }
  }
}

void Segments::map(const std::vector<Interval>& runs, std::vector<Interval>& left) {
  std::vector<Interval> done;
  try {
    for (const Interval& run : runs) {
      const std::uint64_t each = Pieces::granules_each(run.length());
      device_.map_pieces(base_, run.begin * granule_, run.length() * granule_, each * granule_);
      done.push_back(run);
      mapped_ += run.length();
      pieces_.add(run, each);
      ++counters_.maps;
    }
  } catch (...) {
    left = unmap(done);
    throw;
  }
}

std::vector<Interval> Segments::unmap(const std::vector<Interval>& runs) noexcept {
  std::vector<Interval> refused;
  for (const Interval& run : runs)
    if (!unmap_run(run)) refused.push_back(run);
  return refused;
}

bool Segments::unmap_run(Interval run) noexcept {
  try {
    device_.unmap(base_, run.begin * granule_, run.length() * granule_);
  } catch (const std::exception&) {
    return false;
  }
  pieces_.remove(run);
  mapped_ -= run.length();
  counters_.unmaps += run.length();
  return true;
}

}  // namespace stowage::caching
