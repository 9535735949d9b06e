// Limits as people write them: of memory, and of a link's rate.
#pragma once

#include <string>

#include "stowage/bytes.h"
#include "stowage/machine.h"

namespace stowage::samples {

// "8GB/s", "8GB", "8000000000": bytes per second, at least 1. "unthrottled": copies as fast as memory.
// Throws InvalidInput that quotes `text`.
Link parse_link(const std::string& text);

// A size as parse_bytes takes it, or "unlimited".
Bytes parse_limit(const std::string& text);

}  // namespace stowage::samples
