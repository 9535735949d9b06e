#include "samples/options/limits.h"

#include <fmt/format.h>

#include "stowage/error.h"

namespace stowage::samples {

Bytes parse_limit(const std::string& text) { return text == "unlimited" ? unlimited : parse_bytes(text); }

Link parse_link(const std::string& text) {
  if (text == "unthrottled") return Link::unthrottled();
  std::string size = text;
  if (size.ends_with("/s")) size.resize(size.size() - 2);
  Bytes rate = 0;
  try {
    rate = parse_bytes(size);
  } catch (const InvalidInput&) {
    rate = 0;  // told below, with what a rate looks like
  }
  if (rate == 0) {
    throw InvalidInput(fmt::format(
        "\"{}\" is no rate; write for example 8GB/s, 500MB/s, bytes per second, or unthrottled", text));
  }
  return Link{.bytes_per_second = static_cast<double>(rate), .latency_seconds = 10e-6, .throttled = true};
}

}  // namespace stowage::samples
