#include "allocator/mapped_memory.h"

#include <cstdint>

#include "stowage/error.h"

namespace stowage::caching {

bool MappedMemory::map_runs(const std::vector<Interval>& runs, std::vector<Interval>& left,
                            std::exception_ptr& failure) {
  try {
    segments_.map(runs, left);
    return true;
  } catch (const OutOfMemory&) {
    return false;  // the device has less than the limit says
  } catch (const Error&) {
    failure = std::current_exception();
    return false;
  }
}

void MappedMemory::note_event(EventKind kind, Interval run, const Pool& pool) {
  history_.add({kind, reinterpret_cast<std::uintptr_t>(base() + run.begin * granule()),
                run.length() * granule(), 0, pool.id});
}

}  // namespace stowage::caching
