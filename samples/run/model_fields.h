// The sizes that only some families have, as fields of a checkpoint's configuration.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "stowage/models.h"

namespace stowage::samples {

// 0, whole tables, where a checkpoint leaves it out.
inline constexpr const char* table_rows_field = "model.table_rows";

// 1, all tokens, where a checkpoint leaves it out.
inline constexpr const char* keep_tokens_field = "model.keep_tokens";

// Returns the fields whose values are not a default ModelConfig's.
std::map<std::string, std::string> family_fields(const ModelConfig& model);

// Returns whether a field of this name is one of these.
bool is_family_field(std::string_view field);

// Sets the sizes that `configuration` has in `model`. Throws InvalidInput that begins with `where` and names
// the field.
void take_family_fields(const std::map<std::string, std::string>& configuration, const std::string& where,
                        ModelConfig& model);

}  // namespace stowage::samples
