// Hostile text on its way into a page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stowage::report {

// Escapes `text` for HTML text and quoted attributes. Control characters and characters that reverse the
// direction of text are spelled out ("\u202e"), invalid UTF-8 becomes U+FFFD.
std::string html_text(std::string_view text);

// Returns JSON in ASCII without '<', '>', '&' or HTML's quotes, so that it is safe inside a script element of
// any type.
std::string script_json(const nlohmann::json& value);

}  // namespace stowage::report
