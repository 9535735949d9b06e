#include "src/report/escape.h"

#include <fmt/format.h>

#include <cstdint>

namespace stowage::report {
namespace {

using nlohmann::json;

// Characters that would hide or reorder what stands around them.
bool is_spelled_out(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&quot;";
      break;
    case '\'':
      out += "&#39;";
      break;
    default:
      out += c;
  }
}

// nlohmann-json replaces what is no UTF-8.
std::string valid_utf8(std::string_view text) {
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

int sequence_length(unsigned char lead) { return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4; }

std::uint32_t code_point(std::string_view sequence) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(sequence[i]));
  };
  if (sequence.size() == 1) return byte(0);
  std::uint32_t result = byte(0) & (0xffU >> (sequence.size() + 1));
  for (std::size_t i = 1; i < sequence.size(); ++i) result = (result << 6U) | (byte(i) & 0x3fU);
  return result;
}

}  // namespace

std::string html_text(std::string_view text) {
  const std::string valid = valid_utf8(text);
  std::string out;
  for (std::size_t i = 0; i < valid.size();) {
    const auto length = static_cast<std::size_t>(sequence_length(static_cast<unsigned char>(valid[i])));
    const std::string_view sequence = std::string_view(valid).substr(i, length);
    const std::uint32_t c = code_point(sequence);
    if (is_spelled_out(c))
      out += fmt::format("\\u{:04x}", c);
    else if (length == 1)
      append_ascii(out, sequence[0]);
    else
      out += sequence;
    i += length;
  }
  return out;
}

std::string script_json(const json& value) {
  const std::string ascii = value.dump(-1, ' ', true, json::error_handler_t::replace);
  std::string out;
  out.reserve(ascii.size());
  for (const char c : ascii) {
    // Outside of strings JSON has none of these.
    if (c == '<' || c == '>' || c == '&' || c == '\'')
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

}  // namespace stowage::report
