// A plain text as documents of sentences, in tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "stowage/tokenizer.h"

namespace stowage::samples {

// Sentences end with a line, and within one behind `.`, `!` or `?` (and closing quotes or brackets) before
// white space. Blank lines end documents; where a text has none, every hundredth sentence does. Sentences
// without a token are left out, and so are documents without a sentence.
class Documents {
 public:
  // `progress` gets the share of the text that is done, 0 to 1.
  Documents(std::string_view text, const Tokenizer& tokenizer,
            const std::function<void(double)>& progress = {});

  std::size_t documents() const { return documents_.size() - 1; }
  std::size_t sentences() const { return sentences_.size() - 1; }
  // Tokens of all sentences, one after another.
  std::span<const std::int32_t> tokens() const { return tokens_; }

  std::span<const std::int32_t> sentence(std::size_t index) const {
    return std::span(tokens_).subspan(sentences_[index], sentences_[index + 1] - sentences_[index]);
  }
  // Return the document that a sentence is in, and the first sentence of a document (`sentences()` for the
  // document behind the last).
  std::size_t document_of(std::size_t sentence) const;
  std::size_t first_of(std::size_t document) const { return documents_[document]; }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> sentences_;  // index of each sentence's first token, and the end
  std::vector<std::size_t> documents_;  // index of each document's first sentence, and the end
};

// Returns H(token) in nats, from the counts: the least loss of guessing without any context. 0 for no tokens.
double unigram_entropy(std::span<const std::int32_t> tokens);

}  // namespace stowage::samples
