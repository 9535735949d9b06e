// `tokenizer.json`, the one file of the package `tokenizers`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stowage/tokenizer.h"

namespace stowage {

// `name`: the file, for messages.
std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text, const std::string& name);

}  // namespace stowage
