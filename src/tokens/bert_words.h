// BERT's words: cleaned text, cut at white space, around punctuation and around Chinese characters, like the
// "basic tokenizer" of Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers".
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "stowage/tokenizer.h"

namespace stowage {

// Returns the text as BERT's normalizer leaves it, in which late added tokens are looked for. The result has
// the same words.
std::string bert_normalised(std::string_view text, const WordPieceOptions& options);

// Calls take(word) for each word in order; none is empty.
void for_each_bert_word(std::string_view text, const WordPieceOptions& options,
                        const std::function<void(std::u32string_view)>& take);

}  // namespace stowage
