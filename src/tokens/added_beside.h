// Tokens that files beside a vocab.json or vocab.txt add to it: tokenizer_config.json (added_tokens_decoder,
// of transformers 4.34 and newer) and, where that has none, added_tokens.json.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/graph/json_field.h"
#include "src/tokens/added_tokens.h"

namespace stowage {

// Reads one entry of tokenizer.json's added_tokens or of added_tokens_decoder. Throws InvalidInput that names
// the field: a flag that this tokenizer does not have.
AddedToken added_token(const JsonField& item, std::int32_t id);

struct AddedBeside {
  std::string file;                // that has them, for messages
  std::vector<AddedToken> tokens;  // by id
  bool prefix_space = false;       // a text that begins a word gets a space before it ("add_prefix_space")
};
// Returns no tokens where neither file is there. Throws InvalidInput that names the file.
AddedBeside added_beside(const std::filesystem::path& folder);

// Adds the tokens: a new one takes the next id, as transformers gives it, and one of the vocabulary keeps its
// own. Throws InvalidInput that names the file where it says another id.
void add_beside(const AddedBeside& beside, Vocabulary& vocabulary, std::vector<AddedToken>& added);

}  // namespace stowage
