// Recorded histories of allocators: JSON Lines, described with an example in docs/history.md.
#pragma once

#include <string>
#include <string_view>

#include "src/history/allocation_trace.h"

namespace stowage {

// Whether `text` begins as a history does: with an object whose first member is "stowage_history".
bool is_history(std::string_view text);

// Treats its text as hostile: InvalidInput that names `file`, line and field and says what to do, never
// worse.
AllocationTrace parse_history(std::string_view text, const std::string& file);

std::string to_history(const AllocationTrace& trace);

// The lines of a history, for recorders that write them one at a time; each ends in a newline. Sequence
// numbers rise from line to line.
std::string history_header();
std::string history_iteration(std::uint64_t sequence, std::uint64_t iteration);
std::string history_allocate(std::uint64_t sequence, std::uint64_t id, Bytes bytes, std::uint64_t stream);
std::string history_free(std::uint64_t sequence, std::uint64_t id);

// The text that CachingAllocator::history_json writes.

// Whether `text` begins as that does: with an object whose first member is "version".
bool is_allocator_history(std::string_view text);

// Allocations and releases; other events are passed over. A stream in a pool counts as a stream of its own.
// Releases of what was allocated before the oldest event are passed over. Treats its text as hostile:
// InvalidInput that names `file` and field and says what to do, never worse.
AllocationTrace parse_allocator_history(std::string_view text, const std::string& file);

// The text that `stowage run --record` writes (docs/interposer.md).

// Whether `text` begins as such a record does.
bool is_call_record(std::string_view text);

// The allocations and frees of device memory, what went to the host in its place included: of one process on
// one card, since an allocator serves no more. An unfinished last line, as of a process that was killed, is
// passed over. Treats its text as hostile: InvalidInput that names `file` and line and says what to do, never
// worse.
AllocationTrace parse_call_record(std::string_view text, const std::string& file);

// The log of RMM's logging_resource_adaptor.

// Whether `text` begins with that log's columns.
bool is_rmm_log(std::string_view text);

// Thread,Time,Action,Pointer,Size,Stream: allocations and releases in the order of the lines. What RMM could
// not allocate, requests of no bytes and releases of what was allocated before the log begins are passed
// over. Treats its text as hostile: InvalidInput that names `file` and line and says what to do, never worse.
AllocationTrace parse_rmm_log(std::string_view text, const std::string& file);

}  // namespace stowage
