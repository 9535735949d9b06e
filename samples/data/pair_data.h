// Pairs of sentences with masked tokens, on which BERT is pre-trained.
#pragma once

#include <cstdint>
#include <vector>

#include "samples/data/documents.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

// Ids of tokens with a meaning of their own. Tokens that a vocabulary lacks get ids behind it.
struct SpecialIds {
  std::int32_t classification = 0, separator = 0, padding = 0, mask = 0;
  std::int32_t vocabulary = 0;        // all ids are below it
  std::vector<MissingToken> missing;  // tokens with ids behind the tokenizer's vocabulary
  friend bool operator==(const SpecialIds&, const SpecialIds&) = default;
};
SpecialIds special_ids(const Tokenizer& tokenizer);

// A batch, whose vectors hold the rows of one sample after another.
struct PairBatch {
  std::vector<std::int32_t> tokens;         // [batch * sequence]: [CLS] A [SEP] B [SEP], then padding
  std::vector<std::int32_t> targets;        // [batch * sequence]: the token that was masked, elsewhere -1
  std::vector<std::int32_t> token_types;    // [batch * sequence]: 1 in B and behind it its [SEP]
  std::vector<std::int32_t> seen;           // [batch * sequence]: 0 at padding
  std::vector<std::int32_t> next_sentence;  // [batch]: 0 where B follows A in the text, 1 where not
};

// Devlin et al., "BERT", section 3.1 and appendix A.1 and A.2: A and B are runs of sentences, together no
// longer than fits; in one half of the samples B follows A, in the other half (and if nothing follows A) B is
// from another document. The model has to find 15 % (at least one) of the tokens of A and B: 80 % of these
// are [MASK], 10 % another token of the vocabulary, 10 % themselves. Masks are drawn anew for each sample.
//
// A sample depends on the seed, the step and its number alone, and on nothing that happened before.
class PairSource {
 public:
  // `documents` must outlive the source. Throws InvalidInput for fewer than two documents, or a sequence of
  // fewer than 5 tokens.
  PairSource(const Documents& documents, const SpecialIds& ids, std::int64_t batch, std::int64_t sequence,
             std::uint64_t seed);

  // Fills `result`, whose vectors keep their memory from call to call.
  void fill(std::uint64_t step, PairBatch& result) const {
    fill(step, 0, static_cast<std::size_t>(batch_), result);
  }
  // Returns `count` samples from `first` on, which may be behind the batch's end.
  void fill(std::uint64_t step, std::size_t first, std::size_t count, PairBatch& result) const;

 private:
  class Sample;

  const Documents& documents_;
  SpecialIds ids_;
  std::int64_t batch_;
  std::int64_t sequence_;
  std::uint64_t seed_;
};

}  // namespace stowage::samples
