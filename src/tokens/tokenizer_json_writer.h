// Writes tokenizer.json.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tokens/added_tokens.h"
#include "src/tokens/vocabulary.h"
#include "stowage/tokenizer.h"

namespace stowage {

// A tokenizer.json in parts; each text is JSON.
struct TokenizerJson {
  std::string normalizer, pre_tokenizer, decoder;
  std::string model;   // members of "model" before its vocabulary, each with a comma behind it
  std::string merges;  // member of "model" behind its vocabulary, with a comma before it; may be empty
};

// `vocabulary` holds the texts of `added` too.
std::string write_tokenizer_json(const TokenizerJson& json, const Vocabulary& vocabulary,
                                 std::span<const AddedToken> added, std::span<const MissingToken> missing,
                                 Framing framing);

// A text in quotes. What is no UTF-8 becomes U+FFFD.
std::string json_text(std::string_view text);

// Splitting and decoding of byte-level byte pairs, and the members of their model.
TokenizerJson byte_level_json(std::string merges);

}  // namespace stowage
