#include "tools/report/escape.h"

#include <fmt/format.h>

#include "src/base/printable.h"

namespace stowage::report {
namespace {

using nlohmann::json;

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

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character character = take_character(text);
    if (!character.code)
      out += "\xef\xbf\xbd";
    else if (is_spelled_out(*character.code))
      out += printable(character.bytes);
    else if (character.bytes.size() == 1)
      append_ascii(out, character.bytes[0]);
    else
      out += character.bytes;
  }
  return out;
}

std::string script_json(const json& value) {
  const std::string ascii = value.dump(-1, ' ', true, json::error_handler_t::replace);
  std::string out;
  out.reserve(ascii.size());
  for (const char c : ascii) {
    // Outside of strings JSON has none of these characters.
    if (c == '<' || c == '>' || c == '&' || c == '\'')
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

}  // namespace stowage::report
