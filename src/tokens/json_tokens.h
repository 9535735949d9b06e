// Tokens and ids in the JSON files of tokenizers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/graph/json_field.h"

namespace stowage {

// An id from 0 to Vocabulary::most_ids - 1.
std::int32_t token_id(const JsonField& field);

// The members of an object of tokens and their ids, e.g. {"a": 0, "b": 1}.
std::vector<std::pair<std::string, std::int32_t>> tokens_in(const JsonField& field);

}  // namespace stowage
