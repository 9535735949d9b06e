// The files that transformers writes beside a tokenizer's own: tokenizer_config.json,
// special_tokens_map.json, and added_tokens.json where the first has no added_tokens_decoder, as
// transformers 4.34 and newer write it.
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
// the field: a flag that this tokenizer does not have.
AddedToken added_token(const JsonField& item, std::int32_t id);

// A special token that a file names by its part, such as "eos_token", without an id.
struct NamedToken {
  std::string text;
  std::string file, part;  // for messages
};

struct AddedBeside {
  std::string file;                // that has the tokens, for messages
  std::vector<AddedToken> tokens;  // by id
  std::vector<NamedToken> named;

  std::string config;               // the path of tokenizer_config.json; empty: it is not there
  bool any_class = false;           // its tokenizer_class takes tokenizer.json as it is
  std::map<std::string, bool> set;  // those of the settings that it has, and that are not null
  std::optional<bool> setting(const char* name) const;
  // Throws InvalidInput where it says `value` of a setting of which `file` says another.
  [[noreturn]] void refuse(const char* name, bool value, const std::string& file) const;
};
// Returns no tokens and no settings where neither file is there. Throws InvalidInput that names the file.
AddedBeside added_beside(const std::filesystem::path& folder);

// Adds the tokens: a new one takes the next id, as transformers gives it, and one of the vocabulary keeps its
// own. Named ones are special where they have an id. Throws InvalidInput that names the file where it says
// another id, or names a token that has none.
void add_beside(const AddedBeside& beside, Vocabulary& vocabulary, std::vector<AddedToken>& added);

}  // namespace stowage
