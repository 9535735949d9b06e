// How programs write numbers and tables for people, and read what people write in options.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "stowage/error.h"
#include "stowage/machine.h"

namespace stowage {

// "1,234,567"
std::string grouped(std::uint64_t number);
// Returns a text such as "1.2 us", "34.5 ms", "1.20 s" or "4 min 05 s".
std::string format_seconds(double seconds);
// "12.5%" of 0.125
std::string percent(double share);
// Returns the part as a percentage of `whole`, such as "12.5%"; "0.0%" if `whole` is 0.
std::string share(Bytes part, Bytes whole);
// Returns a text such as "84.52 MiB (88627609 bytes)", or "unlimited".
std::string exact(Bytes bytes);

// Returns what `action` returns. Puts `prefix`, such as "--limit: ", before the message of an InvalidInput.
template <class Action>
auto with_prefix(std::string_view prefix, Action action) {
  try {
    return action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("{}{}", prefix, error.what()));
  }
}

// Parses a size as parse_bytes does, or "unlimited".
Bytes parse_limit(const std::string& text);

// Parses a rate of at least 1 byte per second ("8GB/s", "8GB", "8000000000"), or "unthrottled": copies as
// fast as memory. Throws InvalidInput that quotes `text`.
Link parse_link(const std::string& text);

// Lines with a column of labels, then text.
class Lines {
 public:
  template <class... Arguments>
  void add(std::string_view label, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), "{:<14}", label);
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }
  void gap() { text_ += '\n'; }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace stowage
