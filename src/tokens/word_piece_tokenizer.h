// BERT's WordPiece, from the parts that its files hold.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokens/added_beside.h"
#include "src/tokens/added_tokens.h"
#include "src/tokens/vocabulary.h"
#include "stowage/tokenizer.h"

namespace stowage {

struct WordPieceParts {
  Vocabulary vocabulary;
  std::vector<AddedToken> added;
  WordPieceOptions options;
  std::int32_t unknown = 0;
  std::string prefix = "##";               // prefix of tokens that continue a word
  std::size_t most_word_characters = 100;  // a longer word becomes one unknown token
};

std::unique_ptr<Tokenizer> make_word_piece_tokenizer(WordPieceParts parts);

// Reads the text of vocab.txt, with the file's name for messages, and the files beside it.
std::unique_ptr<Tokenizer> read_word_piece_file(std::string_view vocab_text, const std::string& name,
                                                const WordPieceOptions& options,
                                                const AddedBeside& beside = {});

}  // namespace stowage
