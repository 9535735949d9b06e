// Reading and writing config.json, within this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/graph/json_field.h"
#include "stowage/model_files.h"

namespace stowage {

// Returns the field's value. Throws InvalidInput unless it is an integer from 1 to `most`.
std::int64_t size_in_config(const JsonField& field, std::int64_t most);

// Same as to_json; `written`: the type of the parameters in the files beside it, which fields that name the
// type follow. Not set: these fields stay as they were.
std::string config_json(const ModelDescription& model, std::optional<StoredType> written);

}  // namespace stowage
