// Readers of recorded histories of allocators: Stowage's own JSON Lines, described with an example in
// docs/history.md, and three other formats.
#pragma once

#include <string>
#include <string_view>

#include "src/history/allocation_trace.h"

namespace stowage {

// Whether `text` begins like a history: with an object whose first member is "stowage_history".
bool is_history(std::string_view text);

// Parsers treat their text as hostile: the only failure is InvalidInput that names `file` and the place in it
// (line or field) and says what to do.
AllocationTrace parse_history(std::string_view text, const std::string& file);

std::string to_history(const AllocationTrace& trace);

// The lines of a history, for recorders that write them one at a time; each ends in a newline. Sequence
// numbers rise from line to line.
std::string history_header();
std::string history_iteration(std::uint64_t sequence, std::uint64_t iteration);
std::string history_allocate(std::uint64_t sequence, std::uint64_t id, Bytes bytes, std::uint64_t stream);
std::string history_free(std::uint64_t sequence, std::uint64_t id);

// The text that CachingAllocator::history_json writes.

// Whether `text` begins like such a history: with an object whose first member is "version".
bool is_allocator_history(std::string_view text);

// Reads allocations and releases; other events are passed over, and so are releases of memory from before the
// oldest event. A stream in a pool counts as a stream of its own.
AllocationTrace parse_allocator_history(std::string_view text, const std::string& file);

// The text that `stowage run --record` writes (docs/interposer.md).

// Whether `text` begins like such a record.
bool is_call_record(std::string_view text);

// Reads the allocations and frees of device memory, including allocations that went to the host instead. The
// record must be of one process on one card, since an allocator serves no more. An unfinished last line, as
// of a killed process, is passed over.
AllocationTrace parse_call_record(std::string_view text, const std::string& file);

// The log of RMM's logging_resource_adaptor.

// Whether `text` begins with that log's columns.
bool is_rmm_log(std::string_view text);

// Reads lines of Thread,Time,Action,Pointer,Size,Stream: allocations and releases in order. Failed
// allocations, requests of no bytes, and releases of memory from before the log are passed over.
AllocationTrace parse_rmm_log(std::string_view text, const std::string& file);

}  // namespace stowage
