/* The caching allocator for programs that speak C, and for PyTorch's pluggable allocator: what
 * libstowage_allocator.so exports. One allocator for each CUDA device, made when it is first used, kept until
 * the process ends. docs/allocator.md shows it from Python.
 *
 * Units: bytes; devices by the number that the CUDA runtime counts them with. `stream` is a cudaStream_t
 * (null: the legacy default stream; cudaStreamPerThread is refused). Ownership: memory belongs to the caller
 * from stowage_malloc to stowage_free. Texts and paths stay their owner's. Streams are the caller's: they
 * live as long as the process, or until stowage_forget_stream. Order: as CUDA kernels: memory may be used on
 * its stream from malloc on, and is released behind the work that its stream was given before free. Use on
 * another stream must be told by stowage_record_stream before free. Errors: no C++ exception leaves a
 * function. Those that return int return a stowage_status; the others do nothing (malloc returns null), and
 * print the reason on stderr. stowage_last_error has it, by thread. Threads: every function may be called
 * from any thread. Fork: a child has no use of the parent's devices. Where one was used before the fork, or
 * another thread was in a call that may be its first, malloc returns null there, free does nothing, and all
 * else fails. Processes that are to use a device start by spawn. Current device: calls make `device` the
 * calling thread's current CUDA device, as cudaSetDevice does.
 *
 * Environment, read at the first call; where one cannot be read, every call fails and says so:
 *   STOWAGE_LIMIT         bytes of each device that may be mapped: 6GiB, 512 MiB, 4096; without it no limit
 *   STOWAGE_HISTORY       events that each device's history keeps, for snapshots; without it none
 *   STOWAGE_PLAN_PERIODS  1: requests of iterations that come again are planned (stowage_begin_iteration);
 *                         0, or without it: none are
 *   STOWAGE_CUDA_BACKEND  the file libstowage_cuda.so; else it is looked for beside this library
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "stowage/c_status.h"

/* NOLINTBEGIN(readability-identifier-naming): names for C */
#ifdef __cplusplus
extern "C" {
#endif

#define STOWAGE_NO_LIMIT UINT64_MAX
#define STOWAGE_ALL_DEVICES (-1)

/* For torch.cuda.memory.CUDAPluggableAllocator. 512-byte aligned. 0 bytes: null, which is no error. Null
 * where there is not enough, with the account of who holds what as the error; note that PyTorch's pluggable
 * allocator does not look at what it gets. */
void* stowage_malloc(ssize_t size, int device, void* stream);
/* `size` is not looked at. Null: nothing. A foreign address, or one that was freed: an error. Where `stream`
 * is not the stream of malloc, the caller has ordered it behind all use of the memory. */
void stowage_free(void* address, ssize_t size, int device, void* stream);
/* `stream`, of the memory's device, uses the memory too, until its free. Null: nothing. */
void stowage_record_stream(void* address, void* stream);
/* Waits for what was freed, and gives what nobody uses back to the devices. */
void stowage_empty_cache(void);
/* 0 < fraction <= 1 of the device's memory. */
void stowage_set_memory_fraction(double fraction, int device);

/* Before or after the first use. Where more is mapped already, nothing new is until enough was freed.
 * STOWAGE_ALL_DEVICES: of each, also of those to come. */
int stowage_set_limit(int device, uint64_t bytes);
/* Of devices that are not in use yet; 0: none. An event takes 48 bytes. */
int stowage_set_history(size_t events);

/* An iteration of the program begins, such as a training step; call it before the step's first request. With
 * STOWAGE_PLAN_PERIODS=1 the first iterations are recorded, and from then on requests that come as before get
 * fixed addresses of a plan, which takes less memory (docs/allocator.md). Others are served as without a
 * plan. Making a plan takes up to some seconds, and waits for the device; so do requests whose memory the
 * plan moves from another block, until streams are done with it. A program that never calls this has its
 * iterations found, if they repeat exactly. Without the variable it does nothing but check `device`, so that
 * a program can call it in any case. */
int stowage_begin_iteration(int device);

/* The caller sets struct_bytes to sizeof(struct stowage_statistics); the call fills as many fields as both
 * sides know, and sets it to their bytes. New fields come at the end. All 0 but the limit for a device that
 * is not in use; sums over its pools and streams. */
struct stowage_statistics {
  uint64_t struct_bytes;
  uint64_t limit; /* STOWAGE_NO_LIMIT: none */
  uint64_t reserved;
  uint64_t peak_reserved;
  uint64_t allocated; /* what callers have, rounded as the allocator does */
  uint64_t requested; /* as asked */
  uint64_t cached;    /* released, in streams' caches */
  uint64_t peak_allocated;
  uint64_t allocations;
  uint64_t releases;
  uint64_t hits; /* of the allocations: from the stream's own cache */
  uint64_t waits;
  uint64_t retries;
  uint64_t out_of_memory; /* requests that failed */
  uint64_t private_pools;
  uint64_t streams;
  /* Of plans; all 0 without STOWAGE_PLAN_PERIODS=1. */
  uint64_t plans;          /* made */
  uint64_t plan_hits;      /* of the allocations: served by a plan */
  uint64_t plan_unplanned; /* as planned, but without an address: they live beyond their iteration */
  uint64_t plan_misses;    /* while there was a plan: of another size, order or stream, or without room */
  uint64_t plan_reserved;  /* of `reserved`: mapped for plans */
};
int stowage_get_statistics(int device, struct stowage_statistics* statistics);
int stowage_reset_peaks(int device);

/* Writes all devices in use, block by block, and their histories, to a file: as the pickle that PyTorch's
 * memory viewer opens where the name ends in .pickle, else as JSON. */
int stowage_snapshot(const char* path);

/* Call it before a stream is destroyed, all of whose memory was freed: a new one may have its handle. */
int stowage_forget_stream(int device, void* stream);

/* Private pools, for work that is replayed at fixed addresses (CUDA graphs). From begin to end, requests of
 * the streams that `wants` names (nonzero) go to the pool, which is made when it is first named; up to 8 at a
 * time. Its memory is used by nobody else until it is released, which may come before its last free: it goes
 * when both have happened, at the next release, begin or empty_cache. Where several begun pools want a
 * stream, the first one has it. `wants` is asked at each request and free, under a lock, and calls nothing of
 * this file. */
struct stowage_pool {
  uint64_t first, second;
};
int stowage_pool_begin(int device, struct stowage_pool pool, int (*wants)(void* stream, void* context),
                       void* context);
/* Of PyTorch's allocator (torch._C._cuda_CUDAAllocator) these are set_begin_allocate_to_pool,
 * set_end_allocate_to_pool_fn and set_release_pool. `filter` is a const std::function<bool(cudaStream_t)>*,
 * as C++ passes one by value (Itanium ABI, libstdc++). Where no pool can be made, the requests that were to
 * go there fail. */
void stowage_begin_allocate_to_pool(int device, struct stowage_pool pool, const void* filter);
void stowage_end_allocate_to_pool(int device, struct stowage_pool pool);
void stowage_release_pool(int device, struct stowage_pool pool);

/* Of the calling thread's latest call that failed, "" if there is none since stowage_clear_error. Valid until
 * the thread's next failure. Never null. */
const char* stowage_last_error(void);
void stowage_clear_error(void);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(readability-identifier-naming) */
