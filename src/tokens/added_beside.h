// The files that transformers writes beside a tokenizer's own: tokenizer_config.json,
// special_tokens_map.json, and added_tokens.json if the first has no added_tokens_decoder, which transformers
// 4.34 and newer write.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/graph/json_field.h"
#include "src/tokens/added_tokens.h"

namespace stowage {

// Reads one entry of tokenizer.json's added_tokens or of added_tokens_decoder. Throws InvalidInput that names
// the field of a flag that this tokenizer does not support.
AddedToken added_token(const JsonField& item, std::int32_t id);

// A special token that a file names by its role, such as "eos_token", without an id.
struct NamedToken {
  std::string text;
  std::string file, part;  // for messages
};

struct AddedBeside {
  std::string file;                // the file with the tokens, for messages
  std::vector<AddedToken> tokens;  // by id
  std::vector<NamedToken> named;

  std::string config;               // the path of tokenizer_config.json; empty: it is not there
  bool any_class = false;           // true: its tokenizer_class takes tokenizer.json as it is
  std::map<std::string, bool> set;  // settings that the file has, unless null
  std::optional<bool> setting(const char* name) const;
  // Throws InvalidInput: these files have `value` for a setting for which `file` has another.
  [[noreturn]] void refuse(const char* name, bool value, const std::string& file) const;
};
// Returns no tokens and no settings if the files are not there. Throws InvalidInput that names the file.
AddedBeside added_beside(const std::filesystem::path& folder);

// Adds the tokens: a new token takes the next id, as in transformers, and a token of the vocabulary keeps its
// own. Named tokens with an id are special. Throws InvalidInput that names the file if it has another id, or
// names a token without an id.
void add_beside(const AddedBeside& beside, Vocabulary& vocabulary, std::vector<AddedToken>& added);

}  // namespace stowage
