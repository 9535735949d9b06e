// What `stowage run --record` writes (docs/interposer.md), as a trace.
#pragma once

#include <string>
#include <string_view>

#include "src/history/allocation_trace.h"

namespace stowage {

// Whether `text` begins as such a record does.
bool is_call_record(std::string_view text);

// The allocations and frees of device memory, what went to the host in its place included: of one process on
// one card, since an allocator serves no more. An unfinished last line, as of a process that was killed, is
// passed over. Treats its text as hostile: InvalidInput that names `file` and line and says what to do, never
// worse.
AllocationTrace parse_call_record(std::string_view text, const std::string& file);

}  // namespace stowage
