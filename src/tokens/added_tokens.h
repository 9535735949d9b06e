// Tokens that are looked for in a text before anything else is done to it, and the tokenizers that have them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokens/vocabulary.h"
#include "stowage/tokenizer.h"

namespace stowage {

struct AddedToken {
  std::string text;  // not empty
  std::int32_t id = 0;
  bool late = false;  // looked for between the tokens that are not late ("normalized" in tokenizer.json)
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    std::size_t begin = 0;
    const AddedToken* token = nullptr;
  };
  // The leftmost one at or behind `from`, and of those that begin there the longest.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  const AddedToken* longest_at(std::string_view rest) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
};

// The texts of special tokens, in the order in which they are looked for.
std::vector<std::string_view> special_texts();
std::vector<std::string_view> texts_of(SpecialToken token);

// What all tokenizers with added tokens do alike.
class AddingTokenizer : public Tokenizer {
 public:
  AddingTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added);

  std::vector<std::int32_t> encode(std::string_view text, SpecialText special) const final;
  std::int32_t vocabulary_size() const final { return vocabulary_.size(); }
  std::optional<std::int32_t> special(SpecialToken token) const final;

 protected:
  // The ids of a text without added tokens.
  virtual void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<AddedToken>& added() const { return added_; }

 private:
  // Finds the tokens of `rounds_[round]`; the text between them is left to the next round.
  void append_round(std::size_t round, std::string_view text, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  std::vector<AddedToken> added_;
  std::array<AddedTokens, 2> rounds_;  // early tokens, then late ones
};

}  // namespace stowage
