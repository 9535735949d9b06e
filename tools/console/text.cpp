#include "tools/console/text.h"

#include <cmath>

namespace stowage {

std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

std::string share(Bytes part, Bytes whole) {
  return fmt::format("{:.1f}%",
                     whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string exact(Bytes bytes) {
  return bytes == unlimited ? "unlimited" : fmt::format("{} ({} bytes)", format_bytes(bytes), bytes);
}

Bytes parse_limit(const std::string& text) { return text == "unlimited" ? unlimited : parse_bytes(text); }

Link parse_link(const std::string& text) {
  if (text == "unthrottled") return Link::unthrottled();
  const std::string size = text.ends_with("/s") ? text.substr(0, text.size() - 2) : text;
  Bytes rate = 0;
  try {
    rate = parse_bytes(size);
  } catch (const InvalidInput&) {
    rate = 0;  // refused below, with an example of a rate
  }
  if (rate == 0)
    throw InvalidInput(fmt::format(
        "\"{}\" is no rate; write for example 8GB/s, 500MB/s, bytes per second, or unthrottled", text));
  return {.bytes_per_second = static_cast<double>(rate), .latency_seconds = 10e-6, .throttled = true};
}

}  // namespace stowage
