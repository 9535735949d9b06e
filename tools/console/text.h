// How commands and programs write numbers and tables for people.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "stowage/machine.h"

namespace stowage {

// "1,234,567"
std::string grouped(std::uint64_t number);
// "1.2 us", "34.5 ms", "1.20 s", "4 min 05 s"
std::string format_seconds(double seconds);
// "12.5%" of `whole`; "0.0%" of nothing.
std::string share(Bytes part, Bytes whole);
// "84.52 MiB (88627609 bytes)", or "unlimited"
std::string exact(Bytes bytes);

// A label column, then text.
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
