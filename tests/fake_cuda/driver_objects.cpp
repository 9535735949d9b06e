#include "tests/fake_cuda/driver_objects.h"

#include "tests/fake_cuda/driver_streams.h"
#include "tests/fake_cuda/memory.h"

namespace fake_cuda {

Objects& objects() {
  static Objects& only = *new Objects;
  return only;
}

void release_all_of(CUcontext context, bool pools_too) {
  driver_context_ends(context);
  const std::lock_guard lock(objects().mutex);
  std::erase_if(objects().allocated, [&](const auto& entry) {
    const bool goes = entry.second.context == context || (pools_too && entry.second.context == nullptr);
    if (goes) Memory::get().release(Kind::device, as_pointer(entry.first));
    return goes;
  });
  std::erase_if(objects().pinned, [&](const auto& entry) {
    return entry.second == context && Memory::get().release(Kind::pinned, entry.first);
  });
}

}  // namespace fake_cuda
