// What must hold of every tokenizer that was read, whatever its files say.
#pragma once

#include <algorithm>

#include "stowage/tokenizer.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

// `text`: any bytes, of which some are encoded. `byte_level`: they must come back.
inline void check_tokenizer(const Tokenizer& tokenizer, std::string_view text, bool byte_level) {
  text = text.substr(text.size() - std::min<std::size_t>(text.size(), 300));
  for (const SpecialText special : {SpecialText::recognised, SpecialText::ordinary}) {
    // A byte that the vocabulary lacks is refused.
    const auto ids = parsed_or_refused([&] { return tokenizer.encode(text, special); });
    if (!ids) continue;
    for (const std::int32_t id : *ids) {
      if (id < 0 || id >= tokenizer.vocabulary_size()) broken("an id outside the vocabulary");
    }
    if (tokenizer.decode(*ids) != text && byte_level) broken("a text that does not come back");
  }
  for (const SpecialToken token :
       {SpecialToken::end_of_text, SpecialToken::classification, SpecialToken::unknown}) {
    const auto id = tokenizer.special(token);
    if (id && (*id < 0 || *id >= tokenizer.vocabulary_size()))
      broken("a special token outside the vocabulary");
  }
}

}  // namespace stowage::fuzz
