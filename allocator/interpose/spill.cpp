#include "allocator/interpose/spill.h"

#include <algorithm>
#include <iterator>

#include "allocator/interpose/captures.h"
#include "allocator/interpose/driver.h"
#include "allocator/interpose/scopes.h"

namespace stowage::interpose {
namespace {

struct Wanted {
  Bytes bytes = 0;
  std::size_t pitch = 0;
  CUcontext context = nullptr;
};

bool ordered(Entry entry) {
  return entry != Entry::mem_alloc && entry != Entry::mem_alloc_pitch && entry != Entry::mem_free;
}

CUresult context_of(CUstream stream, Entry entry, CUcontext& context) {
  const Entry asked = entry_point(entry).per_thread ? Entry::stream_get_ctx_ptsz : Entry::stream_get_ctx;
  return call_real<decltype(cuStreamGetCtx)>(asked, stream, &context);
}

// Rows begin where textures may, as with the driver.
CUresult want_rows(const AllocateCall& call, CUdevice device, Wanted& wanted) {
  const bool elements = call.element_bytes == 4 || call.element_bytes == 8 || call.element_bytes == 16;
  if (call.pitch == nullptr || !elements) return CUDA_ERROR_INVALID_VALUE;
  int alignment = 0;
  const CUresult result = call_real<decltype(cuDeviceGetAttribute)>(
      Entry::device_get_attribute, &alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device);
  if (result != CUDA_SUCCESS) return result;
  const std::size_t to = alignment > 0 ? static_cast<std::size_t>(alignment) : 1;
  if (__builtin_add_overflow(call.width, to - 1, &wanted.pitch)) return CUDA_ERROR_OUT_OF_MEMORY;
  wanted.pitch = wanted.pitch / to * to;
  const bool too_large = __builtin_mul_overflow(wanted.pitch, call.height, &wanted.bytes);
  return too_large ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

// Fills `wanted`. Returns the error that the driver's function would return for wrong arguments.
CUresult want(const AllocateCall& call, const Block& block, Wanted& wanted) {
  if (call.address == nullptr || block.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  wanted.bytes = block.bytes;
  CUresult result = CUDA_SUCCESS;
  if (ordered(call.entry)) {
    result = context_of(call.stream, call.entry, wanted.context);
  } else {
    wanted.context = current_context();
  }
  if (result == CUDA_SUCCESS && wanted.context == nullptr) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS || call.entry != Entry::mem_alloc_pitch) return result;
  return want_rows(call, block.device, wanted);
}

// Marks the end of the stream's work so far. An event that could not be recorded remains, to be destroyed.
bool mark(const FreeCall& call, CUevent& event) {
  CUresult result = call_real<decltype(cuEventCreate)>(Entry::event_create, &event,
                                                       static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  if (result != CUDA_SUCCESS) {
    event = nullptr;
    return false;
  }
  const Entry record = entry_point(call.entry).per_thread ? Entry::event_record_ptsz : Entry::event_record;
  return call_real<decltype(cuEventRecord)>(record, event, call.stream) == CUDA_SUCCESS;
}

}  // namespace

SpillAnswer Spill::allocate(const AllocateCall& call, const Block& block) {
  const OutsideCapture outside;
  Wanted wanted;
  if (const CUresult result = want(call, block, wanted); result != CUDA_SUCCESS) return {result, {}};
  const InContext in(wanted.context);
  if (!in) return {in.result(), {}};
  const HostOwner owner{block.device, block.context};
  for (bool waited = false;; waited = true) {
    HostPiece piece;
    {
      const MutexLock lock(mutex_);
      settle_locked();
      piece = chunks_.take(wanted.bytes, owner);
      if (piece.address != 0) {
        keep({piece.address, wanted.bytes, block.device, wanted.context, next_id_++}, owner);
        *call.address = piece.address;
        if (call.pitch != nullptr) *call.pitch = wanted.pitch;
        return {};
      }
    }
    // Waits for frees that streams have not reached yet, since these may make room.
    if (waited || !wait_for_room()) {
      return {CUDA_ERROR_OUT_OF_MEMORY, piece.full ? "spill=full" : "spill=failed"};
    }
  }
}

void Spill::keep(const ProgramMemory& memory, const HostOwner& owner) {
  kept_[memory.address] = {memory, owner};
  used_ = true;
}

CUresult Spill::free(const FreeCall& call) {
  const OutsideCapture outside;
  if (ordered(call.entry)) return free_in_order(call);
  const auto memory = find(call.address);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  const InContext in(memory->context);
  return in ? free_at_once({call.address, memory->id, memory->context}) : in.result();
}

CUresult Spill::free_at_once(const Freed& freed) {
  const CUresult result = release_behind_work(&freed);
  return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? CUDA_SUCCESS : result;
}

// Waits for the current context's work and frees `freed`, with what was kept back in that context before. If
// a capture forbids the wait, `freed` is kept back.
CUresult Spill::release_behind_work(const Freed* freed) {
  const CUcontext context = current_context();
  std::vector<Freed> ready;
  {
    const MutexLock lock(mutex_);
    const auto others = std::partition(kept_back_.begin(), kept_back_.end(),
                                       [&](const Freed& one) { return one.context != context; });
    ready.assign(others, kept_back_.end());
    kept_back_.erase(others, kept_back_.end());
  }
  const CUresult result = captures().wait_for_context();
  const bool captured = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const MutexLock lock(mutex_);
  if (freed != nullptr && (captured || result == CUDA_SUCCESS)) ready.push_back(*freed);
  if (result == CUDA_SUCCESS) {
    for (const Freed& one : ready) release(one.address, one.id);
    settle_locked();
  } else {
    kept_back_.insert(kept_back_.end(), ready.begin(), ready.end());
  }
  return result;
}

bool Spill::wait_for_room() {
  bool any = wait_for_pending();
  while (true) {
    CUcontext context = nullptr;
    {
      const MutexLock lock(mutex_);
      if (kept_back_.empty()) return any;
      context = kept_back_.front().context;
    }
    const InContext in(context);
    if (!in || release_behind_work(nullptr) != CUDA_SUCCESS) return any;
    any = true;
  }
}

CUresult Spill::free_in_order(const FreeCall& call) {
  const auto memory = find(call.address);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  if (const CUresult result = context_of(call.stream, call.entry, context); result != CUDA_SUCCESS)
    return result;
  const InContext in(context);
  if (!in) return in.result();
  CUevent event = nullptr;
  const bool marked = mark(call, event);
  if (event != nullptr) {
    const MutexLock lock(mutex_);
    pending_.push_back({call.address, marked ? memory->id : 0, context, event, !marked});
    settle_locked();
  }
  return marked ? CUDA_SUCCESS : free_at_once({call.address, memory->id, context});
}

std::optional<ProgramMemory> Spill::find(CUdeviceptr address) {
  if (!used_) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto after = kept_.upper_bound(address);
  if (after == kept_.begin()) return std::nullopt;
  const ProgramMemory& memory = std::prev(after)->second.memory;
  if (address - memory.address >= memory.bytes) return std::nullopt;
  return memory;
}

void Spill::release(CUdeviceptr address, std::uint64_t id) {
  const auto found = kept_.find(address);
  if (found == kept_.end() || found->second.memory.id != id) return;
  kept_.erase(found);
  chunks_.release(address);
}

void Spill::settle() {
  if (!used_) return;
  const OutsideCapture outside;
  const MutexLock lock(mutex_);
  settle_locked();
}

void Spill::settle_locked() {
  chunks_.retry();
  for (auto at = pending_.begin(); at != pending_.end();) {
    at = settled(*at) ? pending_.erase(at) : std::next(at);
  }
}

// If a query fails, the work may still run, so the memory stays.
bool Spill::settled(Pending& pending) {
  if (pending.waiters > 0) return false;
  if (pending.event != nullptr) {
    const InContext in(pending.context);
    if (!in) return false;
    if (!pending.passed)
      pending.passed = call_real<decltype(cuEventQuery)>(Entry::event_query, pending.event) == CUDA_SUCCESS;
    if (!pending.passed) return false;
    if (call_real<decltype(cuEventDestroy_v2)>(Entry::event_destroy, pending.event) != CUDA_SUCCESS)
      return false;
  }
  if (pending.id != 0) release(pending.address, pending.id);
  return true;
}

bool Spill::wait_for_pending() {
  bool any = false;
  mutex_.lock();
  for (auto at = pending_.begin(); at != pending_.end(); ++at) {
    if (at->event == nullptr || at->passed) continue;
    any = true;
    ++at->waiters;
    const CUevent event = at->event;
    const CUcontext context = at->context;
    mutex_.unlock();
    CUresult result = CUDA_SUCCESS;
    {
      const InContext in(context);
      result = in ? call_real<decltype(cuEventSynchronize)>(Entry::event_synchronize, event) : in.result();
    }
    mutex_.lock();
    --at->waiters;
    if (result == CUDA_SUCCESS) at->passed = true;
  }
  mutex_.unlock();
  return any;
}

// Page-locked memory and events went with their context, and all work in it has ended.
template <class Predicate>
void Spill::went_with(CUcontext context, Predicate gone) {
  if (context != nullptr) chunks_.context_gone(context);
  for (auto at = kept_.begin(); at != kept_.end();) {
    if (gone(at->second.owner)) {
      chunks_.owner_gone(at->second.owner);
      at = kept_.erase(at);
    } else {
      ++at;
    }
  }
  for (Pending& pending : pending_) {
    if (context == nullptr || pending.context != context) continue;
    pending.event = nullptr;
    pending.passed = true;
  }
  const auto went = std::partition(kept_back_.begin(), kept_back_.end(), [&](const Freed& freed) {
    return context == nullptr || freed.context != context;
  });
  for (auto freed = went; freed != kept_back_.end(); ++freed) release(freed->address, freed->id);
  kept_back_.erase(went, kept_back_.end());
  settle_locked();
}

void Spill::context_gone(std::uint64_t context) {
  if (!used_ || context == 0) return;
  const MutexLock lock(mutex_);
  went_with(reinterpret_cast<CUcontext>(context),  // NOLINT(performance-no-int-to-ptr)
            [&](const HostOwner& owner) { return owner.context == context; });
}

void Spill::device_reset(CUdevice device, std::uint64_t primary_context) {
  if (!used_) return;
  const MutexLock lock(mutex_);
  const auto gone = [&](const HostOwner& owner) {
    return (owner.context == 0 && owner.device == device) ||
           (primary_context != 0 && owner.context == primary_context);
  };
  went_with(reinterpret_cast<CUcontext>(primary_context), gone);  // NOLINT(performance-no-int-to-ptr)
}

void Spill::after_fork_in_child() {
  chunks_.forget();
  kept_.clear();
  pending_.clear();
  kept_back_.clear();
  mutex_.unlock();
}

}  // namespace stowage::interpose
