// The interposer's objects, one of each for this process.
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/interpose/ledger.h"
#include "allocator/interpose/service.h"
#include "allocator/interpose/spill.h"

namespace stowage::interpose {

// Returns what `stowage run` says in the environment of the program:
//   STOWAGE_RUN_LIMIT   bytes of each card; none: all
//   STOWAGE_RUN_SPILL   bytes of the host that this process may take where a card is full; none: 0
//   STOWAGE_RUN_CACHE   "1": what cuMemAlloc gives out is kept and used again
//   STOWAGE_RUN_RECORD  the file that the record is appended to; none: no record
//   STOWAGE_RUN_PENDING a folder for lines that are not in the record yet; none: each is written at once
//   STOWAGE_RUN_DETAIL  "calls": every call is in the record; else only what processes there were, and totals
//   STOWAGE_RUN_START   nanoseconds of CLOCK_MONOTONIC: time 0 of the record
LedgerOptions options_of_environment();

Ledger& ledger();
Service& service();
Spill& spill();
// Returns the allocation that `address` is in, if the driver would describe it otherwise than the program
// asked for it.
std::optional<ProgramMemory> program_memory(CUdeviceptr address);

}  // namespace stowage::interpose
