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

// As read; tokens are spelled by the letters of gpt2_pieces.h. Made in this order by those who read files.
class BytePairParts {
 public:
  // `name`: the file, for messages; each function throws InvalidInput that begins with it.
  explicit BytePairParts(std::string name) : name_(std::move(name)) {}

  void add_token(std::string letters, std::int32_t id);
  // That some bytes have tokens at all: else it is another kind of vocabulary. One that was trained on some
  // text alone may lack bytes that are not in it; text that has them is refused.
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

// The texts of vocab.json and merges.txt, and the names of the files for messages; and what is beside them.
std::unique_ptr<Tokenizer> read_byte_pair_files(std::string_view vocab_json, const std::string& vocab_name,
                                                std::string_view merges_text, const std::string& merges_name,
                                                const AddedBeside& beside = {});

}  // namespace stowage
