// What CachingAllocator::history_json writes, as a trace.
#pragma once

#include <string>
#include <string_view>

#include "src/history/allocation_trace.h"

namespace stowage {

// Whether `text` begins as that does: with an object whose first member is "version".
bool is_allocator_history(std::string_view text);

// Allocations and releases; other events are passed over. A stream in a pool counts as a stream of its own.
// Releases of what was allocated before the oldest event are passed over. Treats its text as hostile:
// InvalidInput that names `file` and field and says what to do, never worse.
AllocationTrace parse_allocator_history(std::string_view text, const std::string& file);

}  // namespace stowage
