#include "stowage/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::string_view prefixes = "kmgt";

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw InvalidInput(
      fmt::format("\"{}\" is no size: {}; write for example 6GiB, 512MiB, 1.5G, 10MB or 4096", text, why));
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Bytes per unit; 0 when `suffix` is no unit.
Bytes unit_bytes(std::string_view suffix) {
  const std::string unit = lower(suffix);
  if (unit.empty() || unit == "b") return 1;
  const auto power = prefixes.find(unit.front());
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = std::string_view(unit).substr(1);
  if (rest != "" && rest != "b" && rest != "ib") return 0;
  const Bytes base = rest == "b" ? 1000 : 1024;
  Bytes result = base;
  for (std::size_t i = 0; i < power; ++i) result *= base;
  return result;
}

// The digits after the point times `unit`, rounded down; `digits` is not empty.
Bytes fraction_bytes(std::string_view digits, Bytes unit) {
  long double value = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    value = (value + static_cast<long double>(*digit - '0')) / 10;
  }
  // The quotients above are inexact: 0.3 of 1000 must be 300, not 299.
  constexpr long double slack = 1e-6L;
  return static_cast<Bytes>(value * static_cast<long double>(unit) + slack);
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const std::string_view number = trim(text);
  Bytes whole = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), whole);
  if (error == std::errc::result_out_of_range) refuse(text, "it does not fit in 64 bits");
  if (error != std::errc()) refuse(text, "it does not start with a number");

  std::string_view rest = number.substr(static_cast<std::size_t>(end - number.data()));
  std::string_view fraction;
  if (rest.starts_with('.')) {
    const auto digits = rest.find_first_not_of("0123456789", 1);
    fraction = rest.substr(1, digits == std::string_view::npos ? digits : digits - 1);
    if (fraction.empty()) refuse(text, "digits must follow the point");
    rest.remove_prefix(1 + fraction.size());
  }
  const Bytes unit = unit_bytes(trim(rest));
  if (unit == 0) refuse(text, fmt::format("\"{}\" is no unit", trim(rest)));
  if (unit == 1 && !fraction.empty()) refuse(text, "bytes are whole");

  constexpr Bytes most = std::numeric_limits<Bytes>::max();
  const Bytes part = fraction.empty() ? 0 : fraction_bytes(fraction, unit);
  if (whole > most / unit || part > most - whole * unit) refuse(text, "it does not fit in 64 bits");
  return whole * unit + part;
}

std::string format_bytes(Bytes bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.995 would be printed as 1024.00.
  while (value >= 1023.995 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace stowage
