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

// `name`: the file, for messages. Throws InvalidInput if `beside` contradicts the file about a setting or a
// token: some releases of transformers follow one, some the other. Tokens that the file lacks are added.
std::unique_ptr<Tokenizer> read_tokenizer_json(std::string_view text, const std::string& name,
                                               const AddedBeside& beside = {});

// Reads an id from 0 to Vocabulary::most_ids - 1.
std::int32_t token_id(const JsonField& field);

// Reads an object of tokens and their ids, e.g. {"a": 0, "b": 1}.
std::vector<std::pair<std::string, std::int32_t>> tokens_in(const JsonField& field);

// A tokenizer.json in parts; each text is JSON.
struct TokenizerJson {
  std::string normalizer, pre_tokenizer, decoder;
  std::string model;   // members of "model" before its vocabulary, each with a comma behind it
  std::string merges;  // member of "model" behind its vocabulary, with a comma before it; may be empty
};

// Returns the file's text. Requires that `vocabulary` holds the texts of `added` too.
std::string write_tokenizer_json(const TokenizerJson& json, const Vocabulary& vocabulary,
                                 std::span<const AddedToken> added, std::span<const MissingToken> missing,
                                 Framing framing);

// Returns the text in quotes, with U+FFFD for bytes that are no UTF-8.
std::string json_text(std::string_view text);

// Returns splitting and decoding of byte-level byte pairs, and the members of their model.
TokenizerJson byte_level_json(std::string merges);

}  // namespace stowage
