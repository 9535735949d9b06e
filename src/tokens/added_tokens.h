// Added tokens, which are found in a text before it is tokenized, and the tokenizers that have them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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
  // True: the token is looked for in normalised text, between the tokens that are not late ("normalized" in
  // tokenizer.json).
  bool late = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    std::size_t begin = 0;
    const AddedToken* token = nullptr;
  };
  // Returns the leftmost token at or behind `from`, the longest if several begin there.
  std::optional<Match> find(std::string_view text, std::size_t from) const;
  bool empty() const;

  // Appends the ids of the tokens in `text`, and calls between(…) with the text between them.
  template <class Between>
  void split(std::string_view text, std::vector<std::int32_t>& ids, Between between) const {
    std::size_t at = 0;
    while (const auto match = find(text, at)) {
      between(text.substr(at, match->begin - at));
      ids.push_back(match->token->id);
      at = match->begin + match->token->text.size();
    }
    between(text.substr(at));
  }

 private:
  const AddedToken* longest_at(std::string_view rest) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // tokens by first byte, the longest first
};

// Returns the texts of special tokens, in the order in which they are looked for.
std::vector<std::string_view> special_texts();
std::vector<std::string_view> texts_of(SpecialToken token);

// The common part of all tokenizers with added tokens.
class AddingTokenizer : public Tokenizer {
 public:
  // Returns a text as the model sees it. Idempotent.
  using Normalise = std::function<std::string(std::string_view)>;
  AddingTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added, Normalise normalise = {});

  std::vector<std::int32_t> encode(std::string_view text, SpecialText special) const final;
  std::int32_t vocabulary_size() const final { return vocabulary_.size(); }
  std::optional<std::int32_t> special(SpecialToken token) const final;

 protected:
  // Appends the ids of a text without added tokens.
  virtual void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<AddedToken>& added() const { return added_; }

 private:
  // Finds the tokens that are not late; append_late finds the late ones in the text between them.
  void append_early(std::string_view text, std::vector<std::int32_t>& ids) const;
  void append_late(std::string_view text, std::vector<std::int32_t>& ids) const;

  Vocabulary vocabulary_;
  std::vector<AddedToken> added_;
  Normalise normalise_;  // empty: texts are not changed
  AddedTokens early_;
  AddedTokens late_;  // late tokens, by their normalised texts
};

}  // namespace stowage
