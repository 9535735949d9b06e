#include <algorithm>

#include "tests/fake_cuda/capture.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/state.h"
#include "tests/fake_cuda/stream.h"
#include "tests/fake_cuda/virtual_memory.h"

using fake_cuda::Kind;
using fake_cuda::Memory;
using fake_cuda::State;
using fake_cuda::Streams;
using fake_cuda::VirtualMemory;

void fake_cuda_reset() {
  fake_cuda::Captures::get().clear();
  Streams::get().clear();
  VirtualMemory::get().clear();
  Memory::get().clear();
  State::get().reset();
}

void fake_cuda_set_driver(fake_cuda_driver driver) {
  State::get().change_settings([&](auto& settings) { settings.driver = driver; });
}

void fake_cuda_set_memory(std::size_t capacity, std::size_t context) {
  State::get().change_settings([&](auto& settings) {
    settings.capacity = capacity;
    settings.context = context;
  });
}

void fake_cuda_set_virtual_memory(int supported) {
  State::get().change_settings([&](auto& settings) { settings.virtual_memory = supported != 0; });
}

void fake_cuda_set_cards(int cards) {
  State::get().change_settings([&](auto& settings) { settings.cards = cards; });
}

int fake_cuda_has_context(int card) { return State::get().has_context(card) ? 1 : 0; }

void fake_cuda_set_host_physical(int supported) {
  State::get().change_settings([&](auto& settings) { settings.host_physical = supported != 0; });
}

void fake_cuda_enqueue_work(void* stream, void (*function)(void* context), void* context) {
  Streams::get().enqueue(stream, [=] { function(context); });
}

unsigned fake_cuda_waiting_callers(void) { return State::get().waiting_callers; }

void fake_cuda_hold_driver_work(void) { State::get().driver_work_held = true; }

void fake_cuda_fail_call(const char* name, unsigned nth, int error) {
  State::get().fail_call(name, nth, error);
}

void fake_cuda_during_call(const char* name, void (*function)(void* context), void* context) {
  State::get().during_call(name, [=] { function(context); });
}

void fake_cuda_fault_kernel(unsigned nth, int error) { State::get().fault_kernel(nth, error); }
void fake_cuda_set_pinned(size_t bytes) {
  State::get().change_settings([&](auto& settings) { settings.most_pinned = bytes; });
}

void fake_cuda_set_page_tables(size_t bytes_per_pinned_gib, size_t bytes_per_mapping) {
  State::get().change_settings([&](auto& settings) {
    settings.per_pinned_gib = bytes_per_pinned_gib;
    settings.per_mapping = bytes_per_mapping;
  });
}

uint64_t fake_cuda_virtual_nanoseconds(void) { return State::get().virtual_nanoseconds; }
unsigned fake_cuda_pending_faults() { return State::get().pending_faults(); }
unsigned fake_cuda_calls(const char* name) { return State::get().calls(name); }
void fake_cuda_forget_calls() { State::get().forget_calls(); }

std::size_t fake_cuda_called(const char** names, std::size_t capacity) {
  const auto called = State::get().called();
  std::copy_n(called.begin(), std::min(capacity, called.size()), names);
  return called.size();
}

fake_cuda_live_objects fake_cuda_live() {
  const auto device = Memory::get().count(Kind::device);
  const auto pinned = Memory::get().count(Kind::pinned);
  const auto registered = Memory::get().count(Kind::registered);
  const auto virtual_memory = VirtualMemory::get().count();
  fake_cuda_live_objects live{};
  live.device_allocations = device.ranges;
  live.device_bytes = device.bytes;
  live.pinned_allocations = pinned.ranges + registered.ranges;
  live.pinned_bytes = pinned.bytes + registered.bytes;
  live.reservations = virtual_memory.reservations;
  live.physical_allocations = virtual_memory.physical;
  live.physical_bytes = virtual_memory.physical_bytes;
  live.mappings = virtual_memory.mappings;
  live.streams = Streams::get().stream_count();
  live.events =
      Streams::get().event_count() + static_cast<std::size_t>(std::max(0, State::get().driver_events.load()));
  live.blas_objects = static_cast<std::size_t>(std::max(0, State::get().blas_objects.load()));
  return live;
}

fake_cuda_misuse fake_cuda_misuses() {
  return {State::get().calls_from_host_functions.load(), State::get().pageable_copies.load(),
          State::get().pages_pinned_unfaulted.load(), State::get().spinning_waits.load()};
}
