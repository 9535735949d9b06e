// The log of RMM's logging_resource_adaptor, as a trace.
#pragma once

#include <string>
#include <string_view>

#include "src/history/allocation_trace.h"

namespace stowage {

// Whether `text` begins with that log's columns.
bool is_rmm_log(std::string_view text);

// Thread,Time,Action,Pointer,Size,Stream: allocations and releases in the order of the lines. What RMM could
// not allocate, requests of no bytes and releases of what was allocated before the log begins are passed
// over. Treats its text as hostile: InvalidInput that names `file` and line and says what to do, never worse.
AllocationTrace parse_rmm_log(std::string_view text, const std::string& file);

}  // namespace stowage
