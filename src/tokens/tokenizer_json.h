// `tokenizer.json`, the one file of the package `tokenizers`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/graph/json_field.h"
#include "src/tokens/added_beside.h"
#include "src/tokens/added_tokens.h"
#include "src/tokens/vocabulary.h"
#include "stowage/tokenizer.h"

namespace stowage {

// `name`: the file, for messages. Throws InvalidInput where `beside` says of a setting or a token what the
// file does not: of transformers' releases some go by the one, and some by the other. Tokens that the file
// lacks are added.
std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text, const std::string& name,
                                               const AddedBeside& beside = {});

// Tokens and ids in the JSON files of tokenizers.

// An id from 0 to Vocabulary::most_ids - 1.
std::int32_t token_id(const JsonField& field);

// The members of an object of tokens and their ids, e.g. {"a": 0, "b": 1}.
std::vector<std::pair<std::string, std::int32_t>> tokens_in(const JsonField& field);

// Writing tokenizer.json.

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
