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

}  // namespace stowage
