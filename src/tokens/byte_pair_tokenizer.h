// GPT-2's byte-level byte-pair encoding, from the parts that its files hold.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokens/added_beside.h"
#include "src/tokens/added_tokens.h"
#include "src/tokens/merge_table.h"
#include "src/tokens/vocabulary.h"
#include "stowage/tokenizer.h"

namespace stowage {

// Parts read from files; tokens are spelled by the letters of gpt2_pieces.h. Readers call the functions in
// this order.
class BytePairParts {
 public:
  // `name`: the file, for messages; each function throws InvalidInput that begins with it.
  explicit BytePairParts(std::string name) : name_(std::move(name)) {}

  void add_token(std::string letters, std::int32_t id);
  // Requires that some bytes have tokens: else it is another kind of vocabulary. A vocabulary trained on one
  // text may lack bytes that are not in it; text that has these bytes is refused.
  void require_bytes() const;
  // `where`: the line or field in `name`.
  void add_merge(std::string_view first, std::string_view second, const std::string& name,
                 const std::string& where);

  const std::string& name() const { return name_; }

  Vocabulary vocabulary;
  MergeTable merges;
  std::vector<AddedToken> added;

 private:
  std::int32_t require(const std::string& letters, const std::string& name, const std::string& where) const;
  std::string name_;
};

std::unique_ptr<Tokenizer> make_byte_pair_tokenizer(BytePairParts parts);

// Reads the texts of vocab.json and merges.txt, with the files' names for messages, and the files
// beside them.
std::unique_ptr<Tokenizer> read_byte_pair_files(std::string_view vocab_json, const std::string& vocab_name,
                                                std::string_view merges_text, const std::string& merges_name,
                                                const AddedBeside& beside = {});

}  // namespace stowage
