// JSON of model files: names within an object must differ, which a plain parse does not ask.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/graph/json_field.h"

namespace stowage {

// Throws InvalidInput as parse_json does, and for an object with one name twice.
nlohmann::json parse_strict_json(std::string_view text, const JsonSource& source);

// For messages: in quotes, on one line, not too long.
std::string in_quotes(std::string_view text);

}  // namespace stowage
