// Exports of libstowage_allocator.so, over the CUDA devices of the process.
#include "stowage/c_allocator.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include "allocator/c_api/allocators.h"
#include "stowage/cuda_device.h"

// The CUDA runtime's name of what a cudaStream_t points to.
struct CUstream_st;

namespace {

using stowage::c_api::Allocators;

// Never destroyed: memory may be freed while the process ends, behind the end of CUDA. No lock guards its
// creation, since a fork could leave one locked in the child: if several threads create it, the first result
// is kept.
Allocators& process() {
  static constinit std::atomic<Allocators*> known = nullptr;
  Allocators* found = known.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto made = std::make_unique<Allocators>(
      [](int ordinal) {
        return stowage::open_cuda_device({.ordinal = ordinal, .keeps_current_device = true, .scratch = 0});
      },
      stowage::c_api::Environment{.limit = std::getenv("STOWAGE_LIMIT"),
                                  .history = std::getenv("STOWAGE_HISTORY"),
                                  .plan_periods = std::getenv("STOWAGE_PLAN_PERIODS")});
  const bool first = known.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel);
  return first ? *made.release() : *found;
}

void print_unless_ok(int status) {
  if (status != STOWAGE_OK) Allocators::print_error();
}

}  // namespace

extern "C" {

void* stowage_malloc(ssize_t size, int device, void* stream) {
  return process().allocate(size, device, stream);
}
void stowage_free(void* address, ssize_t, int device, void* stream) {
  process().release(address, device, stream);
}
void stowage_record_stream(void* address, void* stream) { process().record_stream(address, stream); }
void stowage_empty_cache() { process().empty_cache(); }
void stowage_set_memory_fraction(double fraction, int device) {
  process().set_memory_fraction(fraction, device);
}
int stowage_set_limit(int device, uint64_t bytes) { return process().set_limit(device, bytes); }
int stowage_set_history(size_t events) { return process().set_history(events); }
int stowage_begin_iteration(int device) { return process().begin_iteration(device); }
int stowage_get_statistics(int device, stowage_statistics* statistics) {
  return process().get_statistics(device, statistics);
}
int stowage_reset_peaks(int device) { return process().reset_peaks(device); }
int stowage_snapshot(const char* path) { return process().snapshot(path); }
int stowage_forget_stream(int device, void* stream) { return process().forget_stream(device, stream); }

int stowage_pool_begin(int device, stowage_pool pool, int (*wants)(void* stream, void* context),
                       void* context) {
  if (wants == nullptr) return process().begin_pool(device, pool, nullptr);
  return process().begin_pool(device, pool, [=](void* stream) { return wants(stream, context) != 0; });
}

void stowage_begin_allocate_to_pool(int device, stowage_pool pool, const void* filter) {
  using Filter = std::function<bool(CUstream_st*)>;
  if (filter == nullptr) return print_unless_ok(process().begin_pool(device, pool, nullptr));
  const auto copied = [filter] {
    return stowage::c_api::StreamFilter([copy = *static_cast<const Filter*>(filter)](void* stream) {
      return copy(static_cast<CUstream_st*>(stream));
    });
  };
  print_unless_ok(process().begin_pool_of(device, pool, copied));
}

void stowage_end_allocate_to_pool(int device, stowage_pool pool) {
  print_unless_ok(process().end_pool(device, pool));
}
void stowage_release_pool(int device, stowage_pool pool) {
  print_unless_ok(process().release_pool(device, pool));
}

const char* stowage_last_error() { return Allocators::last_error(); }
void stowage_clear_error() { Allocators::clear_error(); }
}
