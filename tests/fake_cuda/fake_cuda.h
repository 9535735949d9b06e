// What tests ask of the fake CUDA runtime, driver and cuBLASLt: how much memory there is, which call
// fails, what was called, what is still alive.
//
// The fakes stand in for libcudart.so.13, libcuda.so.1 and libcublasLt.so.13 where LD_LIBRARY_PATH names
// their folder. They share one state, in libfake_cuda.so, which exports these functions: link it, or find
// them by dlsym. Device memory is host memory. A stream is a thread, so that a missing wait is a real
// race. Kernels run from the libraries that the environment variable STOWAGE_FAKE_CUDA_KERNELS names
// (separated by colons), which stowage_emulate_kernels() builds, looked up by mangled name.
//
// Stricter than a card where it helps: cudaFree waits for no stream (so that the address sanitizer sees a
// use after it); a host function may not call CUDA; a copy must lie inside one allocation. As strict as a
// driver may be: the host functions of all streams run one at a time; a call that enqueues to a stream that
// is full waits until it has room, and holds up the calls of other threads. Where work that waits for another
// thereby waits for ever, the program ends with a message.
// What a stream capture takes is not done, and its graph cannot be launched.
//
// All functions are thread-safe.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Frees all that is alive (handles and addresses of before are void) and returns to the state at start:
// no faults, nothing counted, and what the environment says. Waits for the streams' work.
//   STOWAGE_FAKE_CUDA          no-driver, no-device or empty
//   STOWAGE_FAKE_CUDA_CARDS    how many; 1 without it
//   CUDA_VISIBLE_DEVICES       which of them are there, by number; all without it
//   STOWAGE_FAKE_CUDA_FAIL     CALL:N: as fake_cuda_fail_call(CALL, N, 0); FIRST+CALL:N: the same once there
//                              has been a call of FIRST
//   STOWAGE_FAKE_CUDA_MEMORY   bytes of device memory; 4 GiB without it
//   STOWAGE_FAKE_CUDA_ORDER    forward, reversed or random: how the threads of each block run from one
//                              barrier to the next; without it the blocks of each launch take turns at the
//                              three
//   STOWAGE_FAKE_CUDA_PENDING  pieces of work that a stream holds at most; 1,024 without it
//   STOWAGE_FAKE_CUDA_PATIENCE milliseconds that a host function or a piece of work may keep another, or a
//                              call, waiting before the program ends; 60,000 without it
//   STOWAGE_FAKE_CUDA_PINNED   as fake_cuda_set_pinned
//   STOWAGE_FAKE_CUDA_PAGE_TABLES   none: free memory is exact to the byte (fake_cuda_set_page_tables)
void fake_cuda_reset(void);

enum fake_cuda_driver {
  fake_cuda_driver_present,  // one card
  fake_cuda_no_driver,       // every call of the runtime returns cudaErrorInsufficientDriver
  fake_cuda_no_device,       // cudaErrorNoDevice
};
void fake_cuda_set_driver(enum fake_cuda_driver driver);

// `context` bytes of `capacity` are gone before the first allocation. At start: 64 MiB.
void fake_cuda_set_memory(size_t capacity, size_t context);

// What the card takes for its own tables: of page-locked memory, by the most that there was at a time, in 64
// KiB; and of virtual memory, by the most mappings. It never gives them back. At start: 2 MiB for each pinned
// GiB, that is 8 bytes a page, and 4 KiB for each mapping.
void fake_cuda_set_page_tables(size_t bytes_per_pinned_gib, size_t bytes_per_mapping);

// How many bytes of the host can be page-locked at a time; for more there is no memory. At start: all.
void fake_cuda_set_pinned(size_t bytes);

// Whether cuMemMap and its like are there. At start: 1.
void fake_cuda_set_virtual_memory(int supported);

// How many cards there seem to be: all of them are the one, but for the UUIDs. At start: 1.
void fake_cuda_set_cards(int cards);

// Whether calls of the runtime have made a context on that card, which costs memory of it: cudaSetDevice, and
// whatever needs one on the thread's current card.
int fake_cuda_has_context(int card);

// Whether cuMemCreate makes physical memory of the host. At start: 1.
void fake_cuda_set_host_physical(int supported);

// Enqueues work of the card itself, as a long kernel would be: unlike a host function it keeps no other
// stream waiting. `function` runs on the stream's thread, and is skipped once the card is lost.
void fake_cuda_enqueue_work(void* stream, void (*function)(void* context), void* context);

// Calls that wait at this moment for room in a stream.
unsigned fake_cuda_waiting_callers(void);

// The driver's streams have work from now on, until someone waits for it (cuCtxSynchronize,
// cuEventSynchronize): events that are recorded meanwhile are not passed before.
void fake_cuda_hold_driver_work(void);

// The nth call of `name` from now on (1: the next) does nothing and returns `error`, a value of the API's
// own enumeration; 0 means the API's "unknown". A null name counts every call that can fail (but for the
// exchange of the capture mode, without which a program may go on). Several faults may wait at once.
void fake_cuda_fail_call(const char* name, unsigned nth, int error);

// Runs `function(context)` on another thread within the next call of `name`, which goes on once it has
// returned.
void fake_cuda_during_call(const char* name, void (*function)(void* context), void* context);

// The nth kernel or GEMM to start from now on does not run; instead the card is lost: this and every
// later call of the runtime returns `error` (such as cudaErrorIllegalAddress), and streams skip their
// work, until fake_cuda_reset.
void fake_cuda_fault_kernel(unsigned nth, int error);

// Faults that are still waiting.
unsigned fake_cuda_pending_faults(void);

// Calls so far of `name`; null: of everything that can fail.
unsigned fake_cuda_calls(const char* name);

// Names of the functions called so far that can fail, in order of first call; returns how many there
// are, writes `capacity` of them at most.
size_t fake_cuda_called(const char** names, size_t capacity);

// What virtual memory would have taken so far: 25 us for each of its calls, on a clock that nothing else
// moves.
uint64_t fake_cuda_virtual_nanoseconds(void);

// Forgets calls, faults and that time, keeps everything else.
void fake_cuda_forget_calls(void);

struct fake_cuda_live_objects {
  size_t device_allocations, device_bytes;  // cudaMalloc
  size_t pinned_allocations, pinned_bytes;  // cudaMallocHost, cudaHostAlloc, cudaHostRegister, cuMemHostAlloc
  size_t reservations, physical_allocations, physical_bytes, mappings;
  size_t streams, events;
  size_t blas_objects;
};
struct fake_cuda_live_objects fake_cuda_live(void);

// What a program for a card should not do: CUDA calls from host functions, asynchronous copies of
// pageable memory on a stream that still has work (the fake reads it within the call), leaving to
// cudaHostRegister, which does so on one thread, to fault pages in, waits for events without
// cudaEventBlockingSync.
struct fake_cuda_misuse {
  unsigned calls_from_host_functions;
  unsigned pageable_copies;
  unsigned pages_pinned_unfaulted;
  unsigned spinning_waits;
};
struct fake_cuda_misuse fake_cuda_misuses(void);

#ifdef __cplusplus
}
#endif
