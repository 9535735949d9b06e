// `tokenizer.json`, the one file of the package `tokenizers`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/tokens/added_beside.h"
#include "stowage/tokenizer.h"

namespace stowage {

// `name`: the file, for messages. Throws InvalidInput where `beside` says of a setting or a token what the
// file does not: of transformers' releases some go by the one, and some by the other. Tokens that the file
// lacks are added.
std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text, const std::string& name,
                                               const AddedBeside& beside = {});

}  // namespace stowage
