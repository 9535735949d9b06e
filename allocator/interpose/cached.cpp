#include "allocator/interpose/cached.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "allocator/interpose/captures.h"
#include "allocator/interpose/driver.h"
#include "allocator/interpose/places.h"
#include "allocator/interpose/scopes.h"

namespace stowage::interpose {
namespace {

// After so many failures nothing is cached: the driver lacks such memory.
constexpr unsigned most_failures = 16;

void* pointer_to(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

CUresult wait_for_context(CUcontext context) {
  const InContext in(context);
  return in ? captures().wait_for_context() : in.result();
}

}  // namespace

// Memory of a context may be cached if the machine has one card and the context is its primary one.
std::shared_ptr<Cached::Card> Cached::open_here() {
  const CUcontext context = current_context();
  const MutexLock lock(mutex_);
  if (context == nullptr || failures_ >= most_failures) return nullptr;
  if (card_ != nullptr) return card_->context == context ? card_ : nullptr;
  return card_ = open_card(context);
}

std::shared_ptr<Cached::Card> Cached::open_card(CUcontext context) {
  CUdevice device = 0;
  int devices = 0;
  call_real<decltype(cuCtxGetDevice)>(Entry::ctx_get_device, &device);
  call_real<decltype(cuDeviceGetCount)>(Entry::device_get_count, &devices);
  const auto number = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(context));
  if (devices != 1 || places().primary_context(device) != number) return nullptr;
  ++failures_;
  std::size_t total = 0;
  if (call_real<decltype(cuDeviceTotalMem_v2)>(Entry::device_total_mem, &total, device) != CUDA_SUCCESS)
    return nullptr;
  try {
    auto card = std::make_shared<Card>();
    card->context = context;
    card->device = device;
    card->memory = std::make_unique<CacheDevice>(device, std::min<Bytes>(total, limit_));
    card->allocator =
        std::make_unique<CachingAllocator>(*card->memory, CachingAllocatorOptions{.limit = limit_});
    failures_ = 0;
    return card;
  } catch (const std::exception&) {
    return nullptr;
  }
}

std::shared_ptr<Cached::Card> Cached::card() {
  const MutexLock lock(mutex_);
  return card_;
}

// Returns 0 if the cache does not serve the call, or has no memory for it.
CUdeviceptr Cached::take(Bytes bytes) {
  const OutsideCapture outside;
  try {
    const std::shared_ptr<Card> card = open_here();
    if (card == nullptr) return 0;
    const auto address =
        reinterpret_cast<CUdeviceptr>(card->allocator->allocate_raw(bytes, CacheDevice::lane));
    const MutexLock lock(mutex_);
    if (card_ != card) return 0;  // the card's context has ended meanwhile
    blocks_[address] = {address, bytes, card->device, card->context, next_id_++};
    used_ = true;
    return address;
  } catch (const std::exception&) {
    return 0;
  }
}

CUresult Cached::allocate(const AllocateCall& call) {
  if (call.entry == Entry::mem_alloc && call.address != nullptr && call.bytes > 0) {
    if (const CUdeviceptr address = take(call.bytes)) {
      *call.address = address;
      return CUDA_SUCCESS;
    }
  }
  CUresult result = driver_.allocate(call);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && make_room()) result = driver_.allocate(call);
  return result;
}

// A free in the order of a stream waits, too.
CUresult Cached::free(const FreeCall& call) {
  const auto memory = find(call.address);
  if (!memory || memory->address != call.address) return driver_.free(call);
  const OutsideCapture outside;
  const std::shared_ptr<Card> of = card();
  return of == nullptr ? CUDA_ERROR_INVALID_VALUE : release_behind_work(of, call.address);
}

CUresult Cached::release_behind_work(const std::shared_ptr<Card>& card, CUdeviceptr address) {
  std::vector<CUdeviceptr> ready;  // the wait covers the work of their users
  {
    const MutexLock lock(mutex_);
    ready.swap(card->kept_back);
  }
  const CUresult result = wait_for_context(card->context);
  const bool captured = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const MutexLock lock(mutex_);
  if (card_ != card) return CUDA_ERROR_INVALID_VALUE;  // the card's context has ended meanwhile
  const bool frees = address != 0 && (captured || result == CUDA_SUCCESS);
  const bool known = !frees || blocks_.erase(address) > 0;
  if (frees && known) ready.push_back(address);
  if (result == CUDA_SUCCESS) {
    for (const CUdeviceptr each : ready) card->allocator->release_raw(pointer_to(each));
  } else {
    card->kept_back.insert(card->kept_back.end(), ready.begin(), ready.end());
  }
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  return frees ? CUDA_SUCCESS : result;
}

std::optional<ProgramMemory> Cached::find(CUdeviceptr address) {
  if (!used_) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const ProgramMemory& memory = std::prev(after)->second;
  if (address - memory.address >= memory.bytes) return std::nullopt;
  return memory;
}

Bytes Cached::idle_bytes(CUdevice device) {
  if (!used_) return 0;
  const std::shared_ptr<Card> of = card();
  if (of == nullptr || of->device != device) return 0;
  Bytes idle = 0;
  for (const PoolStatistics& pool : of->allocator->statistics().pools)
    idle += pool.reserved - std::min(pool.reserved, pool.allocated);
  return idle;
}

bool Cached::make_room() {
  if (!used_) return false;
  const OutsideCapture outside;
  const std::shared_ptr<Card> of = card();
  if (of == nullptr) return false;
  bool any = false;
  {
    const MutexLock lock(mutex_);
    any = !of->kept_back.empty();
  }
  if (any) release_behind_work(of, 0);
  return of->allocator->trim() > 0;
}

// The next context gets a new Card, since nobody knows which reserved addresses outlive this one.
void Cached::primary_context_ends(CUdevice device) {
  if (!used_) return;
  const MutexLock lock(mutex_);
  if (card_ == nullptr || card_->device != device) return;
  wait_for_context(card_->context);
  for (const auto& [address, memory] : blocks_) card_->allocator->release_raw(pointer_to(address));
  for (const CUdeviceptr address : card_->kept_back) card_->allocator->release_raw(pointer_to(address));
  blocks_.clear();
  card_->allocator->trim();
  card_.reset();
}

void Cached::after_fork_in_child() {
  // Never destroyed: its locks may be held, and its memory is the parent's.
  static std::shared_ptr<Card>* left = nullptr;
  left = new std::shared_ptr<Card>(std::move(card_));
  static_cast<void>(left);
  failures_ = most_failures;
  blocks_.clear();
  mutex_.unlock();
}

}  // namespace stowage::interpose
